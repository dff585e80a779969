-- Why each trial that has a story was tried: the first sentence told about it.
SELECT t.id, (SELECT d.text FROM decision d WHERE d.trial_id = t.id ORDER BY d.ordinal LIMIT 1) AS told
FROM trial t
WHERE t.sweep_id = :sweep_id
ORDER BY t.ordinal;
