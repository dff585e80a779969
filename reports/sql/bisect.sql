-- Every measurement of the hunts that are shown, in the order they were made. Texts are cut: a message may be anything.
SELECT hunt_id, ordinal, position, substr("key", 1, 80) AS run_key, substr(purpose, 1, 40) AS purpose, status, value, substr(message, 1, 600) AS message,
       build_seconds, run_seconds, started_at
FROM bisect_run
WHERE hunt_id IN (SELECT id FROM bisect_hunt ORDER BY id DESC LIMIT 10)
ORDER BY hunt_id, ordinal
LIMIT 50000;
