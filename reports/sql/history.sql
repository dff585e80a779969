-- Trials in order, with what decided their fate and the title they ran under.
SELECT id, ordinal, phase, status, reason, step_ns, step_ns_low, step_ns_high, tokens_per_s,
       (SELECT l.value FROM trial_log l WHERE l.trial_id = trial.id AND l.name = 'title' ORDER BY l.ordinal DESC LIMIT 1) AS title
FROM trial
WHERE sweep_id = :sweep_id
ORDER BY ordinal;
