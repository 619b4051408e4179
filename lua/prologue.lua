-- The shared beginning of every script: the words in which the others are written.
--
-- KEYS[1] guard  string  the token of the live hold with the latest deadline; its TTL is that
--                        deadline, so it exists exactly while the lock is held
-- KEYS[2] holds  zset    token -> deadline, in server milliseconds
-- KEYS[3] state  hash    of the lock:
--                          'guard'   the guard as last written
--                          'mode'    of the holds as a whole
--                          'fence'   the last one granted
--                          'life'    random; a server that has lost its data has another one
--                          'ticket'  the last position given in the queue
--                          'head'    the waiter that knows it is the head of the queue
--                          'floor'   holds with a fence up to this one are revoked; 'floor:how',
--                                    'floor:by' and 'floor:at' say how, by whom and when
--                          'reinstated'  how many holds are, and 'named' if an owner of a hold was
--                                        chosen by a user; see reinstate() and count_owner()
--                        and of each hold or waiter the fields '<token>:<DETAIL>'
-- KEYS[4] queue  zset    waiting token -> ticket, first come first served
-- KEYS[5] mail   list    wakes the waiter named by ARGV[2]; any other waiter's has the same
--                        name but for the token
-- KEYS[6] past   list    what became of the last holds, the latest last; see line_about()
-- KEYS[7] over   zset    token -> until when a request with it is refused, for it was released or
--                        given up. It outlives the state of an idle lock
--
-- ARGV[1] database  a SELECT that fails here fails before anything is written, which one sent
--                   ahead of the script in the same flight would not
-- ARGV[2] token     of the hold or waiter that calls; '' for none
--
-- All times are the server's, in milliseconds; a fence counts microseconds. Numbers are written with
-- int(), since Lua's own notation turns to 1e+14 for large ones.
--
-- No call works for longer than a few milliseconds, whatever happened before it. What a call leaves
-- to be dropped is dropped by later ones; until then nobody is admitted.

if ARGV[1] ~= '0' then redis.call('SELECT', ARGV[1]) end

local GUARD, HOLDS, STATE, QUEUE, PAST, OVER =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6], KEYS[7]
local TOKEN = ARGV[2]
local DETAILS = { 'mode', 'owner', 'named', 'about', 'since', 'alive', 'fence', 'acquired', 'renewed',
  'keep', 'ttl', 'attempt', 'standing', 'reentrant' }

local CLAIM = 2000           -- how long a lock granted to a waiter waits to be claimed
local GRACE = 500            -- later than the head, the second in the queue looks after a lease
local BATCH = 100            -- holds or waiters that one call drops or admits at most
local LISTED = 100           -- holders and waiters that one reply lists at most
local LONGEST = 4000         -- bytes of a detail that are shown
local POLL = 1000            -- behind another tool's lock, which sends no messages
local DAY = 24 * 3600 * 1000 -- how long the fence and the past outlive their last use
local LAST = 16              -- holds that the past remembers
local MARKS = 1000           -- tokens that are known to be over
local MARKED = 60 * 1000     -- for how long, or for the TTL if that is longer

local function int(number) return string.format('%.0f', number) end

-- All that goes by the server's clock, in one place: the tests put a clock of their own here.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000), time[1] * 1000000 + time[2]
end
-- pcall, so that a key of another type keeps its WRONGTYPE: Redis 6.2 hides the code of an
-- error that a script raises.
local function read_guard() return redis.pcall('GET', GUARD) end
local function write_guard(token, till) redis.call('SET', GUARD, token, 'PXAT', till) end
local function guard_left() return redis.call('PTTL', GUARD) end
-- Up to here.

local now, micros = clock()
local guard = read_guard()
if type(guard) == 'table' then return guard end

-- A guard that rlock did not write, or one of its own with no hold left on record, is not to be
-- touched: the lock counts as held by another tool until that key is gone. One of its own has at
-- least one hold that is live, since it ends with the last of them. One that is gone before the
-- last of them ends was deleted: those holds are revoked.
local written, held_mode, fence, life, ticket, told, floor, reinstated, named,
  standing, keep, own_fence, attempt, lease = unpack(redis.call('HMGET', STATE,
  'guard', 'mode', 'fence', 'life', 'ticket', 'head', 'floor', 'reinstated', 'named',
  TOKEN .. ':standing', TOKEN .. ':keep', TOKEN .. ':fence', TOKEN .. ':attempt', TOKEN .. ':ttl'))
-- All of them, those too that have expired and are not dropped yet. A state without a guard has none.
local count = (written or not fence) and redis.call('ZCARD', HOLDS) or 0
local deleted = written and not guard and redis.call('ZCOUNT', HOLDS, int(now), '+inf') > 0
local live = count > 0 and (deleted or guard and guard == written)
local foreign = guard and not live
-- Is anything left to be dropped, so that nothing can be decided yet?
local leftovers = false
floor, reinstated = tonumber(floor or 0), tonumber(reinstated or 0)
if count == 0 then reinstated, named = 0, nil end

local function detail(token, name) return redis.call('HGET', STATE, token .. ':' .. name) end

-- Is this one of the holds, whatever its standing? It lives through the millisecond of its
-- deadline, as a key does.
local function has(token)
  return (live or foreign) and tonumber(redis.call('ZSCORE', HOLDS, token) or 0) >= now
end

-- A hold has no standing, or it is
--   'revoked'  its holder does not hold the lock any more, but may not know yet: until it has
--              released the hold, or its lease has expired, it keeps others out as before
--   'cooling'  its holder has released it, but sooner than it was to be kept
-- One whose fence was lost, with an evicted key, counts as revoked.
local function standing_of(explicit, its_fence)
  if explicit then return explicit end
  return (tonumber(its_fence or 0) or 0) <= floor and 'revoked' or nil
end

-- Does the caller hold the lock?
local function holds() return not standing_of(standing, own_fence) and has(TOKEN) end

local function mail_of(token) return string.sub(QUEUE, 1, -6) .. 'mail:' .. token end

-- `...` are other fields of the state to go along.
local function forget(token, ...)
  local fields = { ... }
  for _, name in ipairs(DETAILS) do fields[#fields + 1] = token .. ':' .. name end
  redis.call('HDEL', STATE, unpack(fields))
  if token == TOKEN then standing, keep, own_fence, attempt, lease = nil, nil, nil, nil, nil end
end

-- A server that is out of memory stops a script at its first write if that takes memory, and no
-- later one. This takes none, and changes nothing.
local function write_on() redis.call('HDEL', STATE, '') end

-- What became of a hold, for those who ask later, a line each: 'released', 'lost', 'expired', or
-- how it was revoked ('revoked', 'deleted', 'overwritten' or 'forgotten'); when; what came of its
-- command, if anybody said; its id, acquisition, fence and mode; who revoked it; what is shown of it.
local function line_about(token, how, ended, outcome, by)
  local details = redis.call('HMGET', STATE, token .. ':acquired', token .. ':fence',
    token .. ':mode', token .. ':about')
  for i = 1, 4 do details[i] = string.sub(details[i] or '', 1, LONGEST) end
  return table.concat({ how, int(ended), outcome or '', string.sub(token, 1, 8), details[1],
    details[2], details[3], by or '', details[4] }, '\n')
end

-- Never the first write: it takes memory.
local function record(line)
  local length = redis.call('RPUSH', PAST, line)
  if length > LAST then redis.call('LTRIM', PAST, -LAST, -1) end
  redis.call('PEXPIREAT', PAST, int(now + DAY))
end

-- What the record has of a token: how, when and by whom it ended; and whether it is complete.
local function recorded(token)
  local id, lines = string.sub(token, 1, 8), redis.call('LRANGE', PAST, 0, -1)
  for i = #lines, 1, -1 do
    local how, ended, its_id, by = string.match(lines[i],
      '^(%l+)\n([^\n]*)\n[^\n]*\n([^\n]*)\n[^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)')
    if its_id == id then return how, tonumber(ended), by end
  end
  return nil, nil, nil, #lines < LAST
end

-- How and by whom the holds below the floor were revoked, and when.
local function revocation()
  local how, by, at = unpack(redis.call('HMGET', STATE, 'floor:how', 'floor:by', 'floor:at'))
  return how or 'revoked', by or '', tonumber(at or now)
end

-- How a hold ends that is not released, and by whom; nil for one that cools, which was released and
-- is on record, and for one of which nothing is known any more.
local function ending_of(token)
  local explicit, its_fence =
    unpack(redis.call('HMGET', STATE, token .. ':standing', token .. ':fence'))
  if explicit == 'cooling' or not its_fence then return nil end
  if explicit == 'revoked' then return 'forgotten', '' end
  if standing_of(nil, its_fence) then return revocation() end
  return 'expired', ''
end

-- Puts on record what ended at its deadline: pairs of token and deadline.
local function record_expired(scored)
  for i = math.max(1, #scored - 2 * LAST + 1), #scored, 2 do
    local how, by = ending_of(scored[i])
    if how then record(line_about(scored[i], how, scored[i + 1], '', by)) end
  end
end

-- The reply to a caller that does not hold the lock, with the reason:
--   { 'not-held', how, ms since then (-1: not known), by }
-- how is one of those on record, or 'unknown'.
local function not_held()
  local deadline = tonumber(redis.call('ZSCORE', HOLDS, TOKEN) or 0)
  if deadline > 0 and deadline < now then return { 'not-held', 'expired', now - deadline, '' } end
  if has(TOKEN) and standing_of(standing, own_fence) == 'revoked' then
    local how, by, at = revocation()
    if standing or not own_fence then how = 'forgotten' end
    return { 'not-held', how, math.max(now - at, 0), by }
  end
  local how, ended, by, complete = recorded(TOKEN)
  if how then return { 'not-held', how, math.max(now - ended, 0), by } end
  if tonumber(redis.call('ZSCORE', OVER, TOKEN) or 0) >= now then
    return { 'not-held', 'released', -1, '' }
  end
  -- Its details without it: somebody has deleted the holds.
  if own_fence then return { 'not-held', 'forgotten', -1, '' } end
  return { 'not-held', complete and 'unknown' or 'expired', -1, '' }
end

-- A request with this token that arrives from now on has been given up, or its hold released.
local function mark_over(token, ttl)
  local lasts, left = math.max(ttl, MARKED), redis.call('PTTL', OVER)
  -- Those that end first make room: never this one.
  if left ~= -2 then redis.call('ZREMRANGEBYRANK', OVER, 0, -MARKS) end
  redis.call('ZADD', OVER, int(now + lasts), token)
  if left < lasts then redis.call('PEXPIREAT', OVER, int(now + lasts)) end
end

local function is_over(token)
  return tonumber(redis.call('ZSCORE', OVER, token) or 0) >= now
end

-- Makes the guard say that this hold, which has the latest deadline, is live, and sees to it that
-- nothing is kept for ever. `...` are fields of the state to be written along. Only called when
-- the guard is rlock's or absent.
local function watch(token, deadline, ...)
  write_guard(token, deadline)
  redis.call('HSET', STATE, 'guard', token, ...)
  local till = int(math.max(tonumber(deadline), now) + DAY)
  redis.call('PEXPIREAT', HOLDS, till)
  redis.call('PEXPIREAT', STATE, till)
end

-- The same after a change to one of several holds.
local function watch_latest(...)
  local latest = redis.call('ZRANGE', HOLDS, -1, -1, 'WITHSCORES')
  watch(latest[1], latest[2], ...)
end

-- Gives the hold this deadline, sooner or later than before. `...` as in watch().
local function put(token, deadline, ...)
  redis.call('ZADD', HOLDS, int(deadline), token)
  if count > 1 then watch_latest(...) else watch(token, int(deadline), ...) end
end

-- Makes the caller's hold last for another ttl from now, or until `at_least` if that is later; never
-- adds to what is left. The PEXPIREAT comes first, so that no holder loses its lock because memory
-- is full. `...` as in watch().
local function extend(ttl, at_least, ...)
  redis.call('PEXPIREAT', STATE, int(now + ttl + DAY))
  local deadline = math.max(now + ttl, tonumber(keep or 0), at_least)
  put(TOKEN, deadline, TOKEN .. ':renewed', int(now), TOKEN .. ':ttl', int(ttl), ...)
  return deadline - now
end

-- The last fence; none counts as 0, and so does what is not a number.
local function last_fence()
  local last = tonumber(fence or 0)
  return last and last > 0 and last or 0
end

-- A fence more than a day ahead of the clock was written by a server whose clock was wrong, or by
-- nobody: to go on from there would leave no room for the clock to catch up.
local function is_ahead(its_fence) return its_fence > micros + DAY * 1000 end

-- Holds without a fence are what an evicted state left behind. Not deleted on suspicion: a
-- script that has written anything is not stopped any more when the server is out of memory.
local function drop_remains()
  if fence or count == 0 then return end
  redis.call('UNLINK', HOLDS)
  count = 0
end

-- How many holds an owner has whose name was chosen by a user, so that its holds need not be looked
-- for: those above the floor that are not released. A count that was made above another floor is
-- void.
local function held_by(owner)
  local number = redis.call('HGET', STATE, 'named:' .. owner) or ''
  local its_floor, holds_of_it = string.match(number, '^(%d+) (%d+)$')
  return its_floor == int(floor) and tonumber(holds_of_it) or 0
end

local function count_owner(owner, change)
  local number = held_by(owner) + change
  named = '1'
  if number <= 0 then return redis.call('HDEL', STATE, 'named:' .. owner) end
  redis.call('HSET', STATE, 'named', named, 'named:' .. owner, int(floor) .. ' ' .. int(number))
end

-- Corrects what is counted before a hold is forgotten, or released early.
local function uncount(token)
  if reinstated == 0 and not named then return end
  local explicit, its_fence, owner, its_named = unpack(redis.call('HMGET', STATE,
    token .. ':standing', token .. ':fence', token .. ':owner', token .. ':named'))
  if explicit == 'revoked' then
    reinstated = reinstated - 1
    redis.call('HSET', STATE, 'reinstated', int(reinstated))
  elseif its_named and not standing_of(explicit, its_fence) then
    count_owner(owner, -1)
  end
end

-- May a request of this mode, 'exclusive', 'shared' or 'slots:N', be granted now, as far as the
-- present holds go?
local function admissible(mode)
  if live then
    return mode == held_mode and mode ~= 'exclusive' and reinstated == 0
      and (mode == 'shared' or count < tonumber(string.sub(mode, 7)))
  end
  return not foreign
end

-- How an owner that was chosen by a user holds the lock: 'exclusive', 'shared', or nil if it does
-- not, or only a slot of it, which cannot be entered again.
local function mode_of(owner)
  if not (live and named) or held_by(owner) == 0 then return nil end
  if held_mode == 'exclusive' or held_mode == 'shared' then return held_mode end
end

-- The fence of a new grant: larger than all before, and not behind the clock, so that it grows even
-- if the server has lost its data. The one that is `wanted`, if it is larger than all before.
local function next_fence(wanted)
  local last = last_fence()
  return int(wanted > last and wanted or math.max(last + 1, micros))
end

-- The only place where a lock is granted. What is entered again stays as exclusive as it is.
-- `...` are details to be written along.
local function grant(token, mode, deadline, wanted, named_owner, ...)
  drop_remains()
  fence = next_fence(wanted)
  if not live or held_mode ~= 'exclusive' then held_mode = mode end
  count, live = count + 1, true
  put(token, deadline, 'fence', fence, 'mode', held_mode, token .. ':fence', fence,
    token .. ':acquired', int(now), token .. ':renewed', int(now), ...)
  if named_owner then count_owner(named_owner, 1) end
  if token == TOKEN then own_fence, standing = fence, nil end
end

-- An owner's shared hold may outlive the exclusive one that it was entered in. Not looked for among
-- many: it is found when they have become few.
local function settle_mode()
  if held_mode ~= 'exclusive' or count > LISTED then return end
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', HOLDS, int(now), '+inf')) do
    if detail(token, 'mode') == 'exclusive' then return end
  end
  held_mode = 'shared'
  redis.call('HSET', STATE, 'mode', held_mode)
end

local function drop(token)
  uncount(token)
  redis.call('ZREM', HOLDS, token)
  count = count - 1
  if foreign then return forget(token) end
  if count > 0 then
    forget(token)
    settle_mode()
    watch_latest()
  else
    live = false
    redis.call('DEL', GUARD)
    forget(token, 'guard', 'mode')
  end
end

-- From now on no hold with a fence up to this one is the lock's any more, but each keeps others out
-- until it is released or its lease expires. `how` is 'revoked', 'deleted' or 'overwritten'; `by` is
-- who did it.
local function revoke(up_to, how, by)
  if up_to <= floor then return end
  floor = up_to
  redis.call('HSET', STATE, 'floor', int(floor), 'floor:how', how,
    'floor:by', string.sub(by, 1, LONGEST), 'floor:at', int(now))
end

-- A hold of which the server has lost all memory, as a waiter remembers it. Its holder may be at work
-- still and learns only from its next renewal that the lock is lost, so until its lease has expired it
-- keeps everybody out, as a revoked one. Once: no later reminder makes it longer. By its id, since
-- nobody else knows its token; an id can be told from a token by its length.
local function reinstate(id, about, its_fence, acquired, ttl)
  if string.len(id) > 8 or is_over(id) or is_ahead(tonumber(its_fence))
    or redis.call('ZSCORE', HOLDS, id) then return end
  drop_remains()
  mark_over(id, tonumber(ttl))
  if not live then held_mode = 'exclusive' end
  count, live, reinstated = count + 1, true, reinstated + 1
  fence = int(math.max(last_fence(), tonumber(its_fence)))
  put(id, now + ttl, 'fence', fence, 'mode', held_mode, 'reinstated', int(reinstated),
    id .. ':mode', 'exclusive', id .. ':about', string.sub(about, 1, LONGEST), id .. ':fence', its_fence,
    id .. ':acquired', acquired, id .. ':renewed', int(now), id .. ':standing', 'revoked')
end

-- An idle lock keeps its fence and its life, and nothing else.
local function become_idle()
  redis.call('UNLINK', STATE)
  if fence then
    redis.call('HSET', STATE, 'fence', fence, 'life', life or '')
    redis.call('PEXPIREAT', STATE, int(now + DAY))
  else
    life = nil
  end
  ticket, written, told, named, reinstated, floor = nil, nil, nil, nil, 0, 0
  standing, keep, own_fence, attempt, lease = nil, nil, nil, nil, nil
end

-- Drops holds whose leases have expired, as many as one call may.
local function drop_expired()
  local expired = redis.call('ZRANGEBYSCORE', HOLDS, '-inf', '(' .. int(now), 'WITHSCORES',
    'LIMIT', 0, BATCH)
  if #expired == 0 then return end
  write_on()
  record_expired(expired)
  local gone = {}
  for i = 1, #expired, 2 do
    uncount(expired[i])
    forget(expired[i])
    gone[#gone + 1] = expired[i]
  end
  redis.call('ZREM', HOLDS, unpack(gone))
  count = count - #gone
  leftovers = #gone == BATCH
    and redis.call('ZCOUNT', HOLDS, '-inf', '(' .. int(now)) > 0
end

-- Brings the holds up to date: before anything is decided from them.
local function reconcile()
  if deleted then
    write_on()
    revoke(last_fence(), 'deleted', '')
    watch_latest()
    deleted = false
  elseif foreign and written and floor < last_fence() then
    -- When the other tool's key is gone they keep others out again, until they end.
    write_on()
    revoke(last_fence(), 'overwritten', '')
  end
  if not written or live and count == 1 then return end
  if not live and not foreign and (not ticket or redis.call('ZCARD', QUEUE) == 0) then
    -- All of them have expired, and nobody waits.
    write_on()
    record_expired(redis.call('ZRANGE', HOLDS, -LAST, -1, 'WITHSCORES'))
    redis.call('UNLINK', HOLDS)
    count = 0
    return become_idle()
  end
  drop_expired()
  if live then
    settle_mode()
  elseif count == 0 then
    redis.call('HDEL', STATE, 'guard', 'mode')
  end
end

local function wake(token)
  redis.call('RPUSH', mail_of(token), 'look')
  redis.call('PEXPIREAT', mail_of(token), int(now + 2 * CLAIM))
end

-- Only the head of the queue watches for the end of a lease, so a new head has to know that it is one:
-- from a message, or from the reply to its own call.
local function tell(head)
  if head == told then return end
  told = head
  redis.call('HSET', STATE, 'head', head)
  if head ~= TOKEN then wake(head) end
end

-- Grants the lock to the head of the queue for as long as it fits, dropping the dead: one message to
-- each that is granted, and one to the new head. After anything that could let a waiter in, or make
-- another one the head. Returns the head if it has to go on waiting.
local function admit()
  -- There is a ticket for as long as anybody may be waiting.
  if not ticket then return nil end
  for _ = 1, BATCH do
    local head = redis.call('ZRANGE', QUEUE, 0, 0)[1]
    if not head then
      if not live and not foreign and count == 0 then become_idle() end
      return nil
    end
    local mode, alive, owner, its_named, reentrant = unpack(redis.call('HMGET', STATE,
      head .. ':mode', head .. ':alive', head .. ':owner', head .. ':named', head .. ':reentrant'))
    -- What its owner holds by now it may enter.
    local outer = reentrant and its_named and mode_of(owner)
    if tonumber(alive or 0) < now then
      redis.call('ZREM', QUEUE, head)
      forget(head)
    elseif leftovers then
      wake(head)
      return head
    elseif not is_ahead(last_fence()) and
      (admissible(mode) or outer == 'exclusive' or outer == 'shared' and mode == 'shared') then
      redis.call('ZREM', QUEUE, head)
      grant(head, mode, now + CLAIM, 0, its_named and owner)
      wake(head)
    else
      tell(head)
      return head
    end
  end
  local rest = redis.call('ZRANGE', QUEUE, 0, 0)[1]
  if rest then
    leftovers = true
    wake(rest)
  end
  return rest
end

-- What became of the last holds; those too that have ended since anything was written.
local function past()
  local lines = redis.call('LRANGE', PAST, 0, -1)
  local expired = written and redis.call('ZREVRANGEBYSCORE', HOLDS, '(' .. int(now), '-inf',
    'WITHSCORES', 'LIMIT', 0, LAST) or {}
  for i = #expired - 1, 1, -2 do
    local how, by = ending_of(expired[i])
    if how then lines[#lines + 1] = line_about(expired[i], how, expired[i + 1], '', by) end
  end
  return lines
end

-- Details of a hold or a waiter, none so long that a reply could not be read.
local function details_of(token, ...)
  local fields = {}
  for i, name in ipairs({ ... }) do fields[i] = token .. ':' .. name end
  local details = redis.call('HMGET', STATE, unpack(fields))
  for i = 1, #fields do details[i] = string.sub(details[i] or '', 1, LONGEST) end
  return details
end

-- The lock as people see it, with at most so many holders in full, from one on (nil: those whose leases
-- last longest), and waiters from one on (nil: none) and past if asked for:
--   { now, 'free' | 'held' | 'cooling' | 'revoked' | 'foreign', mode or '',
--     ms until it is free (-1: never, -2: it is), last fence or '', life or '',
--     number of holders, { holder ... }, number of waiters, { waiter ... }, { past ... } }
--   holder: { id, owner, mode, about, fence, acquired, renewed, deadline, standing or '' }
--   waiter: { id, mode, about, since }
--   past: as line_about() has it
-- An id is the first 8 characters of a token: enough to tell holds apart, useless to release any
-- that is not reinstated.
local function view(holders_from, holders_at_most, waiters_from, with_past)
  local holders, waiters, scored = {}, {}, {}
  local state, left, number = foreign and 'foreign' or 'free', guard_left(), 0
  if live then
    number = redis.call('ZCOUNT', HOLDS, int(now), '+inf')
    local from = holders_from or math.max(number - holders_at_most, 0)
    scored = redis.call('ZRANGEBYSCORE', HOLDS, int(now), '+inf', 'WITHSCORES',
      'LIMIT', from, holders_at_most)
    left = tonumber(redis.call('ZRANGE', HOLDS, -1, -1, 'WITHSCORES')[2]) - now
    -- Held if one of them is; else revoked if one of them is.
    state = 'cooling'
  end
  for i = 1, #scored, 2 do
    local token = scored[i]
    local owner, mode, about, its_fence, acquired, renewed, explicit = unpack(details_of(token,
      'owner', 'mode', 'about', 'fence', 'acquired', 'renewed', 'standing'))
    if explicit == '' and deleted then explicit = 'revoked' end
    local its_standing = standing_of(explicit ~= '' and explicit, tonumber(its_fence)) or ''
    if its_standing == '' or state ~= 'held' and its_standing == 'revoked' then
      state = its_standing == '' and 'held' or 'revoked'
    end
    holders[#holders + 1] = { string.sub(token, 1, 8), owner, mode, about, its_fence, acquired,
      renewed, scored[i + 1], its_standing }
  end
  local queued = waiters_from and
    redis.call('ZRANGE', QUEUE, waiters_from, waiters_from + LISTED - 1) or {}
  for _, token in ipairs(queued) do
    local alive, mode, about, since = unpack(details_of(token, 'alive', 'mode', 'about', 'since'))
    if (tonumber(alive) or 0) >= now then
      waiters[#waiters + 1] = { string.sub(token, 1, 8), mode, about, since }
    end
  end
  return { int(now), state, live and held_mode or '', left, fence or '', life or '',
    number, holders, redis.call('ZCARD', QUEUE), waiters, with_past and past() or {} }
end

-- For a reply to one that waits or is refused. It may have to remind a server that has forgotten, of
-- those whose leases last longest above all.
local function brief_view() return view(nil, 3, nil, false) end
