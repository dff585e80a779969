-- The operations of the traced step of one trial that compute, sums over the ranks; the longest first. peaks: JSON of what
-- the device reaches, of trials of other engines.
SELECT (SELECT value FROM trial_log WHERE trial_id = :traced_id AND name = 'device_peaks' LIMIT 1) AS peaks,
       o.name, TOTAL(o.count) AS count, TOTAL(o.flops) AS flops, TOTAL(o.bytes) AS bytes, TOTAL(o.duration_ns) AS ns
FROM op o
WHERE o.trial_id = :traced_id AND o.flops > 0 AND o.bytes > 0 AND o.duration_ns > 0
GROUP BY o.name
ORDER BY TOTAL(o.duration_ns) DESC, o.name;
