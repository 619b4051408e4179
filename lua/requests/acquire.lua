-- Requests the lock: for a new client, for a waiter that was woken or whose heartbeat is due, or
-- for either of them again after a lost reply. The token makes all of these the same request.
--
-- This file is the end of a script: build/scripts.rs puts the functions that it needs before it, and
-- `make scripts` tells where the whole is. To find where another name is from:
-- grep -rE 'local [^=]*NAME' lua/
--
-- asking.lua lists the arguments before these.
-- ARGV[LAST + 1] generation  of the lock when the caller last saw holders; '' without the next ones
-- ARGV[LAST + 2] fence       the largest of these holders
-- ARGV[LAST + 3] left        ms that the longest of their leases may last
-- ARGV[LAST + 4] ids         of these holders, separated by spaces; '*', which no release removes, if
--                            some were not listed
--
-- Replies:
-- granted()
-- { 'busy', view }
-- { 'nested' }   a hold encloses the caller, which does not enter it
-- { 'upgrade' }  exclusive inside a shared hold: never granted
-- { 'queued', view, position from 1, ms to sleep unless a message wakes the caller, its arrival if it
--   supersedes }
-- { 'again' }    nothing is decided, because cleanup remains or this attempt was overtaken; ask again
--                at once, as another attempt
-- { 'ended', why_not_held() }  the token was released, or the request withdrawn
-- { 'superseded', about }    a newer request with --supersede has ended this one
-- { 'removed', by }          an operator has ended it
-- { 'ahead', ms, now }  the last fence is too far ahead of the server's clock to be trusted

local GENERATION, IDS = ARGV[LAST + 1], ARGV[LAST + 4]
local FENCE, LEFT = tonumber(ARGV[LAST + 2]), tonumber(ARGV[LAST + 3])

-- The fast path: no client holds or awaits the lock, and the request is new (a hold would have left
-- lock.written, a waiter lock.ticket, and a request that is over a tombstone). So the rest of this script
-- would only grant it with take().
if not (guard or lock.written or lock.ticket or SUPERSEDES) and GENERATION == ''
  and not has_tombstone(TOKEN) and not is_ahead(last_fence()) then
  return take(OWNER ~= '' and OWNER or FRESH)
end

reconcile()
local early = early_reply()
if early then return early end
if is_copy() then return proven({ 'again' }) end
local implausible = ahead(last_fence())
if implausible then return implausible end
-- A client that still asks has not started its command, so a hold that was revoked meanwhile can go.
-- It was revoked with all others: early_reply() ends one that was revoked alone. The request goes on.
if hold_state(own) == 'revoked' and unexpired_hold(TOKEN) then drop_hold(TOKEN) end
-- The server has lost its data since the caller saw these holders, or a replica took over that had
-- not received them: keep everybody out until their leases have ended or were released.
if GENERATION ~= '' and not lock.foreign
  and (GENERATION ~= lock.generation or FENCE > last_fence()) then
  close(GENERATION, FENCE, LEFT, IDS)
end
local superseded = supersede(ARRIVAL)
if superseded then return superseded end
-- Grants the lock to waiters whose turn it is. If the caller is one of them, it claims its hold below.
local head = admit()
if lock.cleanup_pending then return { 'again' } end

if valid_hold() then return hold_again() end
local refused, owner, entry_mode = find_owner()
if refused then return refused end
-- An owner may enter its own lock ahead of the queue, because the queue waits for that owner.
-- The head itself cannot go ahead: admit() would have granted it the lock.
local goes_ahead = not head or NEXT and not is_next(redis.call('ZSCORE', QUEUE, head))
if entry_mode or admissible(MODE, 0) and goes_ahead then
  if not SUPERSEDES or ARRIVAL > 0 then return take(owner) end
  -- There will be no second call, so it gets its arrival, and cancels older requests, now.
  -- None is newer. The waiter that it cancels may have been the head.
  supersede(number_by_clock())
  local reply = take(owner)
  admit()
  return reply
end
if HEARTBEAT == 0 then
  record_skip(ABOUT)
  return busy()
end
enqueue(owner)
local position = queue_position()
if position == 1 then notify_head(TOKEN) end
local sleep = millis_to_sleep(HEARTBEAT, position, head)
local arrival = SUPERSEDES and int(ARRIVAL > 0 and ARRIVAL or number_by_clock()) or nil
return { 'queued', brief_view(), position, sleep, arrival }
