-- Of the traced run the verdict in its own words, and the numbers behind it, by rank (-1: the whole run); and of every trial
-- that a kept change started from, or of the run by which its wall was seen, how much that could have given back.
SELECT trial_id, rank, name, value, '' AS text
FROM metric
WHERE trial_id = :traced_id
  AND (name GLOB 'comm_*' OR name GLOB 'blocking_*' OR name GLOB 'critical_*' OR name GLOB '*_wall_ratio'
       OR name IN ('traced_step_ns', 'compute_busy_ns', 'launch_starved_ns', 'pipeline_bubble_ns', 'gain_ceiling_ratio'))
UNION ALL
SELECT trial_id, -1, name, NULL, value
FROM (SELECT trial_id, name, substr(value, 1, 1000000) AS value
      FROM trial_log
      WHERE trial_id = :traced_id AND name = 'wall_evidence'
      ORDER BY ordinal DESC
      LIMIT 1)
UNION ALL
SELECT m.trial_id, m.rank, m.name, m.value, ''
FROM metric m
WHERE m.rank = -1 AND m.name = 'gain_ceiling_ratio' AND m.trial_id <> :traced_id
  AND m.trial_id IN (SELECT baseline_trial_id FROM decision WHERE sweep_id = :sweep_id AND kind = 'kept'
                     UNION
                     SELECT w.trial_id
                     FROM decision w
                     JOIN decision k ON k.sweep_id = w.sweep_id AND k.baseline_trial_id = w.baseline_trial_id AND k.kind = 'kept'
                     WHERE w.sweep_id = :sweep_id AND w.kind = 'wall')
ORDER BY 1, 2, 3;
