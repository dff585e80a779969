-- The step budget of the trials shown in depth: the mean over the ranks as stored for the whole run, else taken here.
SELECT m.trial_id, t.ordinal, t.wall, m.name,
       COALESCE(MAX(CASE WHEN m.rank = -1 THEN m.value END), AVG(CASE WHEN m.rank >= 0 THEN m.value END)) AS value
FROM metric m
JOIN trial t ON t.id = m.trial_id
WHERE m.trial_id IN (SELECT value FROM json_each(:deep_ids))
  AND (m.name GLOB '*_ns' OR m.name GLOB 'blocking_transfer_ns.*')
GROUP BY m.trial_id, t.ordinal, t.wall, m.name
ORDER BY t.ordinal, m.name;
