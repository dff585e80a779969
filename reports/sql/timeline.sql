-- The records of the last traced step of one trial, by rank, stream and time (Store::unpack_trace has put them into a
-- temporary table). Times count from the step's earliest start.
WITH shown AS (SELECT MAX(step) AS step FROM trace_step WHERE trial_id = :traced_id),
     origin AS (SELECT MIN(start) AS start, MAX("end") AS "end"
                FROM trace_step WHERE trial_id = :traced_id AND step = (SELECT step FROM shown))
SELECT r.step, r.rank, r.correlationId AS id, r.kind, r.streamId AS stream, r.name, r.layer, r.micro_batch,
       r.launch_start - origin.start AS launch_start, r.launch_end - origin.start AS launch_end,
       r.start - origin.start AS start, r."end" - origin.start AS "end", r.group_name AS comm_group, r.bytes, r.flops,
       r.transfer_ns, r.graphId AS graph, r.is_recompute, origin."end" - origin.start AS step_ns
FROM temp.trace_record r
JOIN origin
ORDER BY r.rank, r.streamId, r.start, r.correlationId;
