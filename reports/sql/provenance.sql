-- What the timing of the trial that is shown rests on.
SELECT name, unit, value
FROM metric
WHERE trial_id = :traced_id AND rank = -1
  AND name IN ('tracing_overhead_ratio', 'noise_ratio', 'num_timed_steps', 'traced_step_ns', 'step_ns', 'wall_step_ns')
ORDER BY name;
