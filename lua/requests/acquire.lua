-- Requests the lock: for a new client, for a waiter that was woken or whose heartbeat is due, or
-- for either of them again after a lost reply. The token makes all of these the same request.
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
-- ARGV[11] about       the client, shown to others: host, user, pid, command, kind, label, one per line
-- ARGV[12] attempt     grows with each request of the token. A request whose attempt does not is a
--                      duplicate, or was overtaken: it changes nothing
-- ARGV[13] fence       only on one of several servers, else 0: if the caller is nominated, it becomes
--                      a holder with this fence, unless a larger one was granted here
-- ARGV[14] slot        with that fence, in a lock with slots: the number of the hold; else ''
-- ARGV[15] ticket      only on one of several servers: the caller's, on which they agreed; 0 to propose
--                      one; '' to restore a hold that this server has lost
-- ARGV[16] next        'next' to go ahead of all waiters without it; ''
-- ARGV[17] supersedes  ticket of a request that cancels older ones, from the reply to its first call;
--                      0 in that call; '' for any other request
-- ARGV[18] generation  of the lock when the caller saw the following holders; ''
-- ARGV[19] ...         the holders that the caller saw last, each as id, about, fence, acquired, ms
--                      that its lease may last at most, number of its slot or ''
--
-- One of several servers grants nothing without a fence. It keeps even a caller without a heartbeat
-- in its queue, for the claim window.
--
-- Replies:
-- granted()
-- { 'busy', view }
-- { 'nested' }   a hold encloses the caller, which does not enter it
-- { 'upgrade' }  exclusive inside a shared hold: never granted
-- { 'queued', view, position from 1, ms to sleep unless a message wakes the caller, its ticket if it
--   supersedes }
-- { 'proposed', view, position from 1, ms to sleep, ticket, nomination() or '', whether older waiters
--   with agreed tickets keep it out: '1' or '' }
-- { 'again' }    nothing is decided yet; ask again at once, as another attempt
-- { 'ended', why_not_held() }  the token was released, or the request given up
-- { 'superseded', about }    a newer request with --supersede has ended this one
-- { 'removed', by }          an operator has
-- { 'ahead', ms, now }  a fence or ticket is too far ahead of the server's clock to be trusted

-- The sections have the names of functions of the Rust model. They are not functions themselves,
-- because creating one that captures this many variables takes 1 µs.

local TTL, HEARTBEAT, MODE, AT_LEAST = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local OWNER, FRESH, ENCLOSING, REENTRANT = ARGV[7], ARGV[8], ARGV[9], ARGV[10] ~= ''
local ABOUT, ATTEMPT, WANTED = ARGV[11], tonumber(ARGV[12]), tonumber(ARGV[13])
local SLOT, TICKET, NEXT = tonumber(ARGV[14]), tonumber(ARGV[15]), ARGV[16] ~= ''
local SUPERSEDE, GENERATION = tonumber(ARGV[17]), ARGV[18]

-- Of the waiting requests that supersede, only the newest remains: that with the largest ticket.
-- The first call of a request has no ticket yet, so one that was given up before its first reply
-- cancels nothing. On several servers, only agreed tickets count. Returns the client of a newer
-- one.
local function supersede(arrival)
  local ticket, token, about = string.match(lock.newest or '', '^(%d+) (%S+)\n(.*)$')
  if token == TOKEN then return nil end
  if token and (tonumber(ticket) > arrival or tonumber(ticket) == arrival and token > TOKEN) then
    remove_waiter(TOKEN, 'superseded', about)
    admit()
    return about
  end
  local client = string.sub(ABOUT, 1, MAX_DETAIL)
  if token and lock.ticket and redis.call('ZSCORE', QUEUE, token) then
    remove_waiter(token, 'superseded', client)
  end
  lock.newest = int(arrival) .. ' ' .. TOKEN .. '\n' .. client
  redis.call('HSET', STATE, 'newest', lock.newest)
  redis.call('PEXPIREAT', STATE, state_expiry())
end

-- Sets the details that a hold and a waiter have in common.
local function describe(owner)
  own.mode, own.owner, own.ttl, own.attempt = MODE, owner, ARGV[3], ARGV[12]
  own.about = string.sub(ABOUT, 1, MAX_DETAIL)
end
-- A lock without a generation gets a new one: the end of the fresh owner, which is random.
local function its_generation()
  return lock.generation and lock.generation ~= '' and lock.generation or string.sub(FRESH, -12)
end

-- Grants the lock to the caller.
local function take(owner)
  describe(owner)
  own.renewed = int(now)
  if AT_LEAST > 0 then own.keep_until = int(now + AT_LEAST) end
  -- The caller is not in the queue, so its `since` is a leftover of an evicted queue.
  if not lock.ticket or redis.call('ZREM', QUEUE, TOKEN) == 0 then own.since = int(now) end
  grant(TOKEN, own, now + math.max(TTL, AT_LEAST), WANTED, SLOT, 'generation', its_generation())
  return granted()
end

-- The fast path: no client holds or awaits the lock, so the rest of this script would only grant it.
if not (guard or lock.written or lock.ticket or own.attempt ~= '' or TICKET or SUPERSEDE)
  and lock.count == 0 and WANTED == 0 and GENERATION == ''
  and not has_tombstone(TOKEN) and not is_ahead(last_fence()) then
  return take(OWNER ~= '' and OWNER or FRESH)
end

-- A reply that refuses the lock, or repeats one, counts only from a master.
local function proven(reply)
  write_nothing()
  return reply
end

reconcile()
if has_tombstone(TOKEN) then return proven(how_ended() or { 'ended', why_not_held() }) end
if lock.cleanup_pending then return { 'again' } end
-- The hold was revoked before the client learned of it: report the removal.
if string.find(own.status, '^revoked ') and unexpired_hold(TOKEN) then
  local _, by = revocation(own.status)
  local entry = history_entry(TOKEN, 'released', now, '')
  remove_waiter(TOKEN, 'removed', by)
  admit()
  record({ entry })
  return { 'removed', by }
end
if own.attempt ~= '' and ATTEMPT <= tonumber(own.attempt) then
  -- Not 'granted' for an unclaimed grant, which lasts for the claim window instead of a TTL.
  if valid_hold() and own.renewed ~= '' then return proven(granted()) end
  -- Two URLs of a quorum may lead to this server. Another attempt for the overtaken request would
  -- undo what the later one has done.
  return proven(TICKET and { 'busy', brief_view() } or { 'again' })
end
local furthest = math.max(last_fence(), WANTED, TICKET or 0, TICKET and tonumber(lock.ticket) or 0)
if is_ahead(furthest) then return proven({ 'ahead', millis_ahead(furthest), int(now) }) end
-- One of several servers is asked for a hold that was revoked here meanwhile, or that ended before
-- its lease expired. It must not grant that hold again.
if WANTED > 0 and not valid_hold() then
  local how = recorded(TOKEN)
  if unexpired_hold(TOKEN) or how and how ~= 'expired' then return proven({ 'busy', brief_view() }) end
end
-- Drops the caller's hold if it was revoked, or if too few servers granted it: then it has a ticket,
-- or asks for another slot.
if (TICKET and TICKET > 0 and WANTED == 0 or SLOT and own.slot ~= ARGV[14]
  or hold_state(own) == 'revoked') and unexpired_hold(TOKEN) then
  drop_hold(TOKEN)
end
-- The server has lost its data since the caller saw these holders, or a replica took over that had
-- not received them.
for i = 19, GENERATION ~= '' and not lock.foreign and #ARGV or 0, 6 do
  if GENERATION ~= lock.generation or tonumber(ARGV[i + 2]) > last_fence() then
    reinstate(unpack(ARGV, i, i + 5))
  end
end
if SUPERSEDE and not valid_hold() and not enclosing_hold(ENCLOSING) then
  local arrival = TICKET or WANTED == 0 and SUPERSEDE or 0
  local newer = arrival > 0 and supersede(arrival)
  if newer then return { 'superseded', newer } end
end
local head, nominated = nil, 0
if not TICKET then head, nominated = admit() end
if lock.cleanup_pending then return { 'again' } end
-- One of several servers is asked for a slot that another token has here.
if SLOT and not valid_hold() and is_taken(taken_slots(), SLOT) then
  return proven({ 'busy', brief_view() })
end

-- hold_again(): the caller already holds the lock.
if valid_hold() then
  if AT_LEAST > 0 then own.keep_until = int(tonumber(own.acquired) + AT_LEAST) end
  if WANTED > 0 and tonumber(own.fence) ~= WANTED then
    lock.fence = next_fence(WANTED)
    own.fence = lock.fence
  end
  own.attempt = ARGV[12]
  extend(TTL, 0, 'fence', lock.fence)
  redis.call('DEL', MAIL)
  return granted()
end

-- decide(): it does not hold the lock yet.
local enclosing, entered = enclosing_hold(ENCLOSING)
local owner = enclosing and details_of(enclosing).owner or ''
if OWNER ~= '' then owner, entered = OWNER, owner_mode(OWNER) end
if owner == '' then owner = FRESH end
if not REENTRANT then entered = nil end
if entered == 'shared' and MODE == 'exclusive' then return proven({ 'upgrade' }) end
if enclosing and not entered then return proven({ 'nested' }) end

-- An owner may enter its own lock ahead of the queue, because the queue waits for that owner. A hold
-- that is restored needs no turn.
local is_first = not head or NEXT and not is_next(redis.call('ZSCORE', QUEUE, head))
if not TICKET and (entered or admissible(MODE, 0) and (is_first or WANTED > 0)) then
  local supersedes = SUPERSEDE == 0 and WANTED == 0 and not enclosing
  if supersedes then supersede(own_ticket()) end
  local reply = take(owner)
  if supersedes then admit() end
  return reply
end
if HEARTBEAT == 0 and not TICKET then
  record_skip(ABOUT)
  return proven({ 'busy', brief_view() })
end

lock.generation = its_generation()
describe(owner)
own.reentrant = REENTRANT and '1' or ''
-- Presumed alive for two heartbeats and a claim window, because one heartbeat may get lost.
own.alive = int(now + 2 * HEARTBEAT + CLAIM_WINDOW)
if TICKET then own.origin = TICKET > 0 and 'agreed' or 'proposed' end
local position, ticket = enqueue(TICKET, NEXT)
if not TICKET then
  local turn = math.max(position - nominated, 1)
  if turn == 1 then notify_head(TOKEN) end
  local sleep = millis_to_sleep(turn, MODE, HEARTBEAT, head)
  local arrival = SUPERSEDE and int(SUPERSEDE > 0 and SUPERSEDE or own_ticket()) or nil
  return { 'queued', brief_view(), position, sleep, arrival }
end

-- place(): this is one of several servers.
head, nominated = admit()
if lock.cleanup_pending then return { 'again' } end
-- The reply says what a message would say.
redis.call('DEL', MAIL)
position = redis.call('ZRANK', QUEUE, TOKEN) + 1
if entered or is_nominated(TOKEN) then
  -- admit() may have granted the slot to a waiter.
  if SLOT and is_taken(taken_slots(), SLOT) then return { 'busy', brief_view() } end
  if WANTED > 0 then return take(owner) end
  local terms = nomination(position)
  return { 'proposed', brief_view(), position, CLAIM_WINDOW / 2, int(ticket), terms, '' }
end
local at_most = HEARTBEAT > 0 and HEARTBEAT or CLAIM_WINDOW
local sleep = millis_to_sleep(position - nominated, MODE, at_most, head)
local kept_out = HEARTBEAT == 0 and is_kept_out(position, MODE) and '1' or ''
return { 'proposed', brief_view(), position, sleep, int(ticket), '', kept_out }
