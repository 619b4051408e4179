-- Ends a hold, or lets it cool until it has been kept long enough, and hands the lock to the head of
-- the queue.
--
-- { 'released' }
-- { 'not-held' }

reconcile()

local held = holds()
if held and tonumber(keep or 0) > now then
  redis.call('HSET', STATE, TOKEN .. ':standing', 'cooling')
  put(TOKEN, keep)
  -- The end that it waits for may be nearer now.
  local head = admit()
  if head then wake(head) end
  return { 'released' }
end
if has(TOKEN) and standing ~= 'cooling' then
  drop(TOKEN)
elseif #TOKEN > 8 and has(string.sub(TOKEN, 1, 8)) then
  -- Forgotten by the server and recalled by its id, it leaves for good.
  drop(string.sub(TOKEN, 1, 8))
end
admit()
return { held and 'released' or 'not-held' }
