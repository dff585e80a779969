-- Predicted beside measured, for the trials that ran to the end.
SELECT t.id, t.ordinal, t.phase, t.predicted_peak_bytes, t.peak_bytes, t.predicted_step_ns, t.step_ns,
       (SELECT grade FROM prediction p WHERE p.trial_id = t.id AND p.name = 'peak_bytes') AS memory_grade,
       (SELECT grade FROM prediction p WHERE p.trial_id = t.id AND p.name = 'step_ns') AS time_grade
FROM trial t
WHERE t.sweep_id = :sweep_id AND t.status = 'ok'
ORDER BY t.ordinal;
