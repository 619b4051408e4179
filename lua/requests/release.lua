-- Ends a hold, or keeps it as cooling until its minimum time is up, and admits the head of the
-- queue. Afterward, the token is rejected, unless it is a waiter's: that keeps waiting.
--
-- ARGV[3] outcome  of the command, for the history: 'exit N', 'signal N', 'lost' if it was stopped
--                  because its lease could not be renewed in time, 'not started'; ''
--
-- Replies:
-- { 'released' }
-- { 'not-held', why_not_held() }

local OUTCOME = ARGV[3]
local ENDING = OUTCOME == 'lost' and 'lost' or 'released'

-- What has never started has no minimum time.
local keep_until = OUTCOME ~= 'not started' and tonumber(own.keep_until) or 0

-- The fast path: only the caller holds the lock, and no client waits for it.
if lock.live and guard == TOKEN and lock.count == 1 and hold_state(own) == 'held'
  and keep_until <= now and is_queue_empty() then
  local entry, ttl = history_entry(TOKEN, ENDING, now, OUTCOME), tonumber(own.ttl) or 0
  become_idle(GUARD, HOLDS)
  add_tombstone(TOKEN, ttl)
  record({ entry })
  return { 'released' }
end

reconcile()

local held = valid_hold()
local reply = held and { 'released' } or { 'not-held', why_not_held() }
local ttl = tonumber(own.ttl) or 0
local ended = unexpired_hold(TOKEN) and own.status ~= 'cooling'
local entry = ended and history_entry(TOKEN, ENDING, now, OUTCOME)

-- Before anything changes: if the queue cannot be read, nothing is released.
local is_queued = lock.ticket and redis.call('ZSCORE', QUEUE, TOKEN)
local cools = held and keep_until > now
if cools or not ended then write_nothing() end
if cools then
  own.status = 'cooling'
  set_deadline(TOKEN, own, keep_until)
elseif ended then
  drop_hold(TOKEN)
end
-- A waiter has no hold to release, and keeps waiting. But if the token had a hold, here or on other
-- servers, it no longer waits: a late copy of its request may have queued it again.
if not is_queued or recorded(TOKEN) or own.origin ~= '' then
  if is_queued then
    redis.call('ZREM', QUEUE, TOKEN)
    delete_details(TOKEN)
  end
  -- If the server has forgotten the hold, this keeps a waiter that saw it from closing the lock.
  if not ended then add_tombstone(id_of(TOKEN), ttl) end
  add_tombstone(TOKEN, ttl)
end
reopen(id_of(TOKEN))
local head = admit()
-- The head may now wait for an earlier deadline.
if cools and head then wake(head) end
-- Last, so that a failure to record does not block the queue.
if entry then record({ entry }) end
return reply
