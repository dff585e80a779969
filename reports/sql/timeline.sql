-- The records of the last traced step of one trial, by rank, stream and time. Times count from the step's earliest start.
WITH shown AS (SELECT MAX(step) AS step FROM trace_step WHERE trial_id = :traced_id),
     origin AS (SELECT MIN(start) AS start, MAX("end") AS "end"
                FROM trace_step WHERE trial_id = :traced_id AND step = (SELECT step FROM shown))
SELECT r.step, r.rank, r.correlationId AS id, r.kind, r.streamId AS stream, n.value AS name, r.layer, r.micro_batch,
       r.launch_start - origin.start AS launch_start, r.launch_end - origin.start AS launch_end,
       r.start - origin.start AS start, r."end" - origin.start AS "end", g.value AS comm_group, r.bytes, r.flops,
       r.transfer_ns, r.graphId AS graph, r.is_recompute, origin."end" - origin.start AS step_ns
FROM trace_record r
JOIN origin
JOIN StringIds n ON n.id = r.nameId
JOIN StringIds g ON g.id = r.groupId
WHERE r.trial_id = :traced_id AND r.step = (SELECT step FROM shown)
ORDER BY r.rank, r.streamId, r.start, r.correlationId;
