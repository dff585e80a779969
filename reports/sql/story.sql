-- Every decision in order, with the number and step time of the trials it speaks about.
SELECT d.ordinal, d.phase, d.kind, d.wall, d.remedy, d.knob, d.value_before, d.value_after, d.gain_ratio, d.gain_low_ratio,
       d.gain_high_ratio, d.noise_ratio,
       d.text, d.trial_id, t.ordinal AS trial_ordinal, t.step_ns AS trial_step_ns, t.status AS trial_status,
       b.ordinal AS baseline_ordinal, b.step_ns AS baseline_step_ns
FROM decision d
LEFT JOIN trial t ON t.id = d.trial_id
LEFT JOIN trial b ON b.id = d.baseline_trial_id
WHERE d.sweep_id = :sweep_id
ORDER BY d.ordinal;
