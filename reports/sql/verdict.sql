-- Named numbers of the whole run of the winner.
SELECT name, unit, value
FROM metric
WHERE trial_id = :winner_id AND rank = -1
ORDER BY name;
