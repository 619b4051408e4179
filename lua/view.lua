-- The lock as others see it.
--
-- Reads:   guard, holds, queue, state, history; lock, now
-- Changes: nothing

-- How many holders a reply to a waiter lists. The waiter can remind a server that lost its data of
-- them; those whose leases last longest matter most.
local MAX_REMINDED = 3

-- The text, cut to the length that a reply may show.
local function cut(text) return string.sub(text, 1, MAX_DETAIL) end

-- Whether a text looks like a token of any version of rlock: a UUID of version 8.
local function is_of_rlock(text)
  return #text == 36 and string.sub(text, 15, 15) == '8'
    and string.gsub(text, '[0-9a-f]', 'x') == 'xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx'
end

-- A waiter, and whether it is presumed alive:
--   { id, mode, about, since, next }
-- An id is the first 8 characters of a token: enough to tell holds apart, but not to release one.
-- `next` is 'next' with --next, else ''.
local function shown_waiter(token, score)
  local details = details_of(token)
  return { string.sub(token, 1, 8), cut(details.mode), cut(details.about), cut(details.since),
    is_next(score) and 'next' or '' }, (tonumber(details.alive) or 0) >= now
end

-- A hold, and its state:
--   { id, owner, mode, about, fence, acquired, renewed, deadline, status, since, slot }
-- `status` is '' if it is held. `since` is the time of its first request, and `slot` its number; each
-- can be ''.
local function shown_hold(token, deadline)
  local details = details_of(token)
  local its_state = hold_state(details)
  if its_state == 'held' and lock.deleted then its_state = 'revoked' end
  local renewed = details.renewed ~= '' and details.renewed or details.acquired
  return { string.sub(token, 1, 8), cut(details.owner), cut(details.mode), cut(details.about),
    cut(details.fence), cut(details.acquired), cut(renewed), deadline,
    its_state == 'held' and '' or its_state, cut(details.since), cut(details.slot) }, its_state
end

-- The waiters that are presumed alive, from index `from` on, as shown_waiter() shows them.
local function waiters(from)
  local listed = {}
  local scored = redis.call('ZRANGE', QUEUE, from, from + MAX_LISTED - 1, 'WITHSCORES')
  for i = 1, #scored, 2 do
    local shown, alive = shown_waiter(scored[i], scored[i + 1])
    if alive then listed[#listed + 1] = shown end
  end
  return listed
end

-- The lock with up to `holders_at_most` holders, from the one at `holders_from` (nil: those whose
-- leases last longest). Only inspect fills in the waiters and the history:
--   { now, state, mode, left, fence, generation, holder_count, holders, waiter_count, waiters,
--     history, skipped, is_of_rlock }
-- `state` is 'free', 'held', 'cooling', 'revoked' or 'foreign'. `left` is ms until it is free (-1:
-- never, -2: it is). `fence` is the last one. `mode`, `fence`, `generation` and `skipped`,
-- which is as record_skip() writes it, can be ''. Holders are as shown_hold() shows them.
-- `is_of_rlock` is '1' if the guard of a foreign lock has the form of a token, else ''.
local function view(holders_from, holders_at_most, listed_waiters, entries)
  local holders, scored = {}, {}
  local state, number, left = lock.foreign and 'foreign' or 'free', 0, nil
  if lock.live then
    number = redis.call('ZCOUNT', HOLDS, int(now), '+inf')
    local from = holders_from or math.max(number - holders_at_most, 0)
    scored = redis.call('ZRANGEBYSCORE', HOLDS, int(now), '+inf', 'WITHSCORES',
      'LIMIT', from, holders_at_most)
    left = tonumber(redis.call('ZRANGE', HOLDS, -1, -1, 'WITHSCORES')[2]) - now
    -- The lock is held if any hold is, else revoked if any hold is.
    state = 'cooling'
  end
  for i = 1, #scored, 2 do
    local shown, its_state = shown_hold(scored[i], scored[i + 1])
    if its_state == 'held' or state ~= 'held' and its_state == 'revoked' then state = its_state end
    holders[#holders + 1] = shown
  end
  return { int(now), state, cut(lock.live and lock.mode or ''), left or guard_left(),
    cut(lock.fence or ''), lock.generation or '', number, holders,
    redis.call('ZCARD', QUEUE), listed_waiters or {}, entries or {}, cut(lock.skipped or ''),
    lock.foreign and is_of_rlock(guard) and '1' or '' }
end

-- For a reply to a request that waits or is refused.
local function brief_view() return view(nil, MAX_REMINDED) end
