-- Trials in order, with what decided their fate.
SELECT id, ordinal, phase, status, reason, step_ns, step_ns_low, step_ns_high, tokens_per_s
FROM trial
WHERE sweep_id = :sweep_id
ORDER BY ordinal;
