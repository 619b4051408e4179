-- One call: the time, and the lock as the call finds it.
--
-- Reads:   guard, holds, state
-- Changes: nothing
--
-- All parts share these variables, and the header of each names those that it changes:
--   now, micros  the server's time; constant
--   lock         the lock's fields of the state, by their names, except for two:
--                  written    'guard': the guard as last written
--                  notified   'head': the waiter that knows it is the head of the queue
--                The generation is '' if missing. `fence` is text, and `ticket` too, unless they are
--                missing: while nobody waits, there is no ticket. Also
--                  count      holds on record, expired ones included
--                  live       whether a hold of rlock excludes others
--                  deleted    whether the guard was deleted under live holds
--                  foreign    whether another tool holds the lock
--                  cleanup_pending  whether expired holds or waiters remain, so that nothing can
--                             be decided
--   own          the details of the calling token; see details.lua

-- A function keeps `seconds` out of the variables of the script.
local function clock()
  local seconds, micros = unpack(redis.call('TIME'))
  micros = seconds * 1000000 + micros
  return math.floor(micros / 1000), micros
end
local function guard_left() return redis.call('PTTL', GUARD) end

local now, micros = clock()
-- pcall keeps the WRONGTYPE code for a key of another type. Redis 6.2 hides the code of an error
-- that a script raises.
local guard = redis.pcall('GET', GUARD)
if type(guard) == 'table' then return guard end

local fields = redis.call('HMGET', STATE, 'guard', 'mode', 'fence', 'generation', 'ticket', 'head',
  'revoked_up_to', 'nominated', 'newest', 'skipped', 'details:' .. TOKEN)
-- Replies cut the generation to this length, and a waiter sends it back as it was shown.
local lock = { written = fields[1], mode = fields[2], fence = fields[3],
  generation = string.sub(fields[4] or '', 1, MAX_DETAIL), ticket = fields[5],
  notified = fields[6], revoked_up_to = tonumber(fields[7] or 0), nominated = fields[8] or '',
  newest = fields[9], skipped = fields[10], count = redis.call('ZCARD', HOLDS) }
-- rlock's own guard expires with the last hold. If it is gone earlier, it was deleted, which
-- revokes those holds. A guard that rlock did not write, or one without any hold on record, belongs
-- to another tool: the lock stays busy until that key is gone.
lock.deleted = lock.written and not guard and redis.call('ZCOUNT', HOLDS, int(now), '+inf') > 0
lock.live = lock.count > 0 and (lock.deleted or guard and guard == lock.written)
lock.foreign = guard and not lock.live

-- Whether no hold is on record, and no other tool holds the lock.
local function is_free() return lock.count == 0 and not lock.foreign end

-- Whether no client waits. While one may wait, there is a ticket.
local function is_queue_empty() return not lock.ticket or redis.call('ZCARD', QUEUE) == 0 end

-- When the state expires, unless a later hold or waiter keeps it.
local function state_expiry() return int(now + math.max(guard_left(), 0) + DAY) end

-- Whether pcall failed because another tool has put something else in place of a key that the lock
-- can do without. That must not hide what the script has done before. The caller repeats any other
-- failure with call, so that the reply names the command.
local function is_wrong_type(reply)
  return type(reply) == 'table' and string.find(reply.err or '', 'WRONGTYPE', 1, true) ~= nil
end

-- A write that changes nothing. It has two uses:
--   * A replica refuses it, so a reply after it is a master's. A replica may lag, so its word must not
--     end a hold, a wait or a request.
--   * A server that is out of memory stops a script only at its first write, and only if that write
--     needs memory. This one needs none, so what follows succeeds too: an end,
--     which frees memory, never a grant.
local function write_nothing() redis.call('HDEL', STATE, '') end
