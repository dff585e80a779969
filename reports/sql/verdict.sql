-- Named numbers of the whole run of the trial that is shown.
SELECT name, unit, value
FROM metric
WHERE trial_id = :shown_id AND rank = -1
ORDER BY name;
