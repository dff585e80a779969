-- The operations of the traced step of one trial that compute, sums over the ranks; the longest first, as a stranger's file
-- may have any number. peaks, in the first row: JSON of what the device reaches, of trials of other engines.
SELECT CASE ROW_NUMBER() OVER (ORDER BY ns DESC, name)
         WHEN 1 THEN (SELECT substr(value, 1, 4096) FROM trial_log
                      WHERE trial_id = :traced_id AND name = 'device_peaks' LIMIT 1)
       END AS peaks,
       name, count, flops, bytes, ns
FROM (SELECT o.name AS name, TOTAL(o.count) AS count, TOTAL(o.flops) AS flops, TOTAL(o.bytes) AS bytes,
             TOTAL(o.duration_ns) AS ns
      FROM op o
      WHERE o.trial_id = :traced_id AND o.flops > 0 AND o.bytes > 0 AND o.duration_ns > 0
      GROUP BY o.name)
ORDER BY ns DESC, name
LIMIT 10000;
