-- The operations of the traced step of one trial that compute, sums over the ranks; the longest first.
SELECT o.name, SUM(o.count) AS count, SUM(o.flops) AS flops, SUM(o.bytes) AS bytes, SUM(o.duration_ns) AS duration_ns
FROM op o
WHERE o.trial_id = :traced_id AND o.flops > 0 AND o.bytes > 0 AND o.duration_ns > 0
GROUP BY o.name
ORDER BY SUM(o.duration_ns) DESC, o.name;
