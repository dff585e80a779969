-- What each trial was for (the title it ran under) and what was made of it (the last verdict about it).
SELECT t.id,
       (SELECT l.value FROM trial_log l WHERE l.trial_id = t.id AND l.name = 'title' ORDER BY l.ordinal DESC LIMIT 1) AS title,
       (SELECT d.text FROM decision d WHERE d.trial_id = t.id AND d.kind IN ('kept', 'rejected', 'undecided', 'pruned')
        ORDER BY d.ordinal DESC LIMIT 1) AS told
FROM trial t
WHERE t.sweep_id = :sweep_id
ORDER BY t.ordinal;
