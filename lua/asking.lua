-- Asking for the lock: what acquire.lua and the requests to one of several servers have in common.
--
-- Reads:   queue, state; lock, own, now, micros
-- Changes: all that reconcile() and admit() change; queue, tombstones, history; in the state 'newest',
--          'generation' and 'ticket'; lock.newest, lock.generation, lock.ticket, own
--
-- ARGV[3] ttl          of the lease, in ms
-- ARGV[4] heartbeat    ms until a waiter calls again at the latest; 0: do not wait
-- ARGV[5] mode         'exclusive', 'shared' or 'slots:N'
-- ARGV[6] at_least     ms from the grant for which the lock is kept, even if released sooner
-- ARGV[7] owner        chosen by the user; '': that of the enclosing hold, or the next argument
-- ARGV[8] fresh_owner  one that no other request has
-- ARGV[9] enclosing    tokens of this lock's holds that enclose or enclosed the caller, the innermost
--                      last, each followed by a space
-- ARGV[10] reentrant   'reentrant' to enter a lock that the owner holds; ''
-- ARGV[11] about       the client, shown to others: a record of its kind, host, user, pid, command and
--                      label
-- ARGV[12] attempt     grows with each request of the token. A request whose attempt does not is a
--                      duplicate, or was overtaken: it changes nothing
-- ARGV[13] next        'next' to go ahead of all waiters without it; ''
-- ARGV[14] arrival     of a request that supersedes, from the reply to its first call; 0 in that call;
--                      '' for any other request

-- The number of the last of these. A request's own arguments follow, so that one more here moves none.
local LAST = 14

local TTL, HEARTBEAT, MODE, AT_LEAST = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local OWNER, FRESH, ENCLOSING, REENTRANT = ARGV[7], ARGV[8], ARGV[9], ARGV[10] ~= ''
local ABOUT, ATTEMPT = string.sub(ARGV[11], 1, MAX_DETAIL), tonumber(ARGV[12])
local NEXT, SUPERSEDES, ARRIVAL = ARGV[13] ~= '', ARGV[14] ~= '', tonumber(ARGV[14])

-- A reply that refuses the lock, or repeats one, counts only from a master.
local function proven(reply)
  write_nothing()
  return reply
end

local function busy() return proven({ 'busy', brief_view() }) end

-- Whether the request is a duplicate, or was overtaken by a later one.
local function is_copy() return own.attempt ~= '' and ATTEMPT <= tonumber(own.attempt) end

-- The reply to a caller that holds the lock:
--   { 'granted', fence, number of its slot or '' }
local function granted() return { 'granted', own.fence, own.slot } end

-- After reconcile(): the reply to a request that is over, to a copy of one that holds the lock, and
-- while cleanup remains; nil for any other. It ends a request whose hold was revoked individually.
local function early_reply()
  if has_tombstone(TOKEN) then return proven(how_ended() or { 'ended', why_not_held() }) end
  if lock.cleanup_pending then return { 'again' } end
  -- The hold was revoked before the client learned of it: report the removal.
  if is_removed(own) and unexpired_hold(TOKEN) then
    local _, by = revocation(own.status)
    local entry = history_entry(TOKEN, 'released', now, '')
    remove_waiter(TOKEN, 'removed', by)
    admit()
    record({ entry })
    return { 'removed', by }
  end
  -- Not 'granted' for an unclaimed grant, which lasts for the claim window instead of a TTL.
  if is_copy() and valid_hold() and own.renewed ~= '' then
    -- A master's word. Besides, since Redis 8, a WAIT covers only what its own connection wrote.
    write_nothing()
    write_details(TOKEN, own)
    return granted()
  end
end

-- The reply if the last fence, or another number that the request relies on, is implausible: by how
-- many milliseconds it is ahead of the clock.
local function ahead(furthest)
  if not is_ahead(furthest) then return nil end
  return proven({ 'ahead', math.floor(math.min(furthest - micros, 2 ^ 53) / 1000), int(now) })
end

-- A number that is not behind the clock, and larger than the newest arrival: an arrival on the only
-- server, and a ticket that one of several proposes, because it may become an arrival.
local function number_by_clock()
  return math.max(micros, tonumber(string.match(lock.newest or '', '^%d+') or 0) + 1)
end

-- Of the waiting requests that supersede, only the newest remains: that with the largest arrival. On
-- one of several servers, the ticket on which they agreed is the arrival. A waiting request has none
-- (0) before its first reply, so one that was withdrawn sooner cancels nothing. Returns the reply if
-- a newer one has ended this one.
local function supersede(arrival)
  if not SUPERSEDES or arrival == 0 or valid_hold() or enclosing_hold(ENCLOSING) then return nil end
  local its_arrival, token, about = string.match(lock.newest or '', '^(%d+) (%S+)(.*)$')
  if token == TOKEN then return nil end
  its_arrival = tonumber(its_arrival)
  if token and (its_arrival > arrival or its_arrival == arrival and token > TOKEN) then
    remove_waiter(TOKEN, 'superseded', about)
    admit()
    return { 'superseded', about }
  end
  if token and redis.call('ZSCORE', QUEUE, token) then
    remove_waiter(token, 'superseded', ABOUT)
  end
  lock.newest = int(arrival) .. ' ' .. TOKEN .. ABOUT
  redis.call('HSET', STATE, 'newest', lock.newest)
  redis.call('PEXPIREAT', STATE, state_expiry())
end

-- The reply to a caller that already holds the lock, or was granted it while it waited.
local function hold_again()
  if AT_LEAST > 0 then own.keep_until = int(tonumber(own.acquired) + AT_LEAST) end
  own.attempt = ARGV[12]
  -- commit.lua may have raised the fence.
  extend(TTL, 0, 'fence', lock.fence)
  redis.call('DEL', MAIL)
  return granted()
end

-- The reply to a request that an enclosing hold keeps out, or nil; its owner; and the mode in which
-- that owner holds the lock, if the request may enter it.
local function find_owner()
  local enclosing, entry_mode = enclosing_hold(ENCLOSING)
  local owner = enclosing and details_of(enclosing).owner or ''
  if OWNER ~= '' then owner, entry_mode = OWNER, owner_mode(OWNER) end
  if owner == '' then owner = FRESH end
  if not REENTRANT then entry_mode = nil end
  if entry_mode == 'shared' and MODE == 'exclusive' then return proven({ 'upgrade' }) end
  if enclosing and not entry_mode then return proven({ 'nested' }) end
  return nil, owner, entry_mode
end

-- Sets the details that a hold and a waiter have in common.
local function describe(owner)
  own.mode, own.owner, own.ttl, own.attempt, own.about = MODE, owner, ARGV[3], ARGV[12], ABOUT
end

-- A lock without a generation gets a new one: the end of the fresh owner, which is random.
local function its_generation()
  return lock.generation ~= '' and lock.generation or string.sub(FRESH, -12)
end

-- Grants the lock to the caller. `fence` and `slot` as for grant().
local function take(owner, fence, slot)
  describe(owner)
  own.renewed = int(now)
  if AT_LEAST > 0 then own.keep_until = int(now + AT_LEAST) end
  -- Leaves the queue. A caller that was not there begins its `since` now, whatever an evicted queue
  -- has left.
  if not lock.ticket or redis.call('ZREM', QUEUE, TOKEN) == 0 then own.since = int(now) end
  grant(TOKEN, own, now + math.max(TTL, AT_LEAST), fence, slot, 'generation', its_generation())
  return granted()
end

-- Puts the caller at the end of the queue, or of those with --next, or leaves it where it is. `agreed`
-- is nil on the only server, which counts tickets. On one of several, it is the ticket on which they
-- agreed, or 0 before that: then this server proposes one. Returns its ticket.
local function enqueue(owner, agreed)
  local score = lock.ticket and redis.call('ZSCORE', QUEUE, TOKEN)
  local ticket = score and ticket_of(score)
  if not ticket then own.since = int(now) end
  if agreed then own.origin = agreed > 0 and 'agreed' or 'proposed' end
  own.reentrant = REENTRANT and '1' or ''
  -- Presumed alive for two heartbeats and a claim window, because one heartbeat may get lost.
  own.alive = int(now + 2 * HEARTBEAT + CLAIM_WINDOW)
  lock.generation = its_generation()
  describe(owner)
  if not ticket or agreed and agreed > 0 then
    local last = tonumber(lock.ticket or 0)
    ticket = agreed == 0 and math.max(last + 1, number_by_clock()) or agreed or last + 1
    lock.ticket = int(math.max(last, ticket))
    redis.call('ZADD', QUEUE, int(NEXT and ticket - NEXT_OFFSET or ticket), TOKEN)
  end
  redis.call('HSET', STATE, 'generation', lock.generation, 'ticket', lock.ticket, 'details:' .. TOKEN, encoded(own))
  local expiry = state_expiry()
  redis.call('PEXPIREAT', STATE, expiry)
  redis.call('PEXPIREAT', QUEUE, expiry)
  return ticket
end

-- The caller's position in the queue, from 1.
local function queue_position() return redis.call('ZRANK', QUEUE, TOKEN) + 1 end
