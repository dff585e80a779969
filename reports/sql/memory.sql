-- Memory at the peak of each rank: "total", "capacity" and the groups, measured and predicted, for the trials shown in depth.
SELECT m.trial_id, t.ordinal, m.rank, m."group" AS memory_group, m.bytes, m.predicted_bytes, m.peak_allocation
FROM memory_peak m
JOIN trial t ON t.id = m.trial_id
WHERE m.trial_id IN (SELECT value FROM json_each(:deep_ids))
ORDER BY t.ordinal, m.rank, m."group";
