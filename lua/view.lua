-- The lock as others see it.
--
-- Reads:   guard, holds, queue, state, history; lock, now
-- Changes: nothing

-- How many holders a reply to a waiter lists. The waiter can remind a server that lost its data of
-- them; those whose leases last longest matter most.
local MAX_REMINDED = 3

-- Whether a text looks like a token of any version of rlock: a UUID of version 8.
local function is_of_rlock(text)
  return #text == 36 and string.sub(text, 15, 15) == '8'
    and string.gsub(text, '[0-9a-f]', 'x') == 'xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx'
end

-- A waiter, and whether it is presumed alive. 'waiter' is 'next' with --next, else ''.
local function shown_waiter(token, score)
  local details = details_of(token)
  local shown = '\nwaiter ' .. (is_next(score) and 'next' or '') .. described(token, details)
  return shown, is_alive(details)
end

-- A hold, and its state, which is also the item 'holder'.
local function shown_hold(token, deadline)
  local details = details_of(token)
  local state = hold_state(details)
  if state == 'held' and lock.deleted then state = 'revoked' end
  local renewed = details.renewed ~= '' and details.renewed or details.acquired
  return '\nholder ' .. state .. '\nowner ' .. details.owner .. '\nrenewed ' .. renewed
    .. '\ndeadline ' .. deadline .. '\nslot ' .. details.slot .. described(token, details), state
end

-- The lock as a list of records: these, up to `holders_at_most` holders, from the one at
-- `holders_from` (nil: those whose leases last longest), the clients that were turned away (see
-- history.lua), and the lock itself:
--   lock         'free', 'held', 'cooling', 'revoked' or 'foreign'
--   now
--   mode         of the holds as a whole
--   left         ms until it is free (-1: never, -2: it is)
--   holders      how many there are
--   waiters      how many there are
--   is_of_rlock  '1' if the guard of a foreign lock has the form of a token
--   generation
--   fence        the last one
local function view(holders_from, holders_at_most, records)
  local state, number, left, scored = lock.foreign and 'foreign' or 'free', 0, nil, {}
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
    records[#records + 1] = shown
  end
  records[#records + 1] = lock.skipped or nil
  records[#records + 1] = '\nlock ' .. state .. '\nnow ' .. int(now)
    .. '\nmode ' .. (lock.live and lock.mode or '') .. '\nleft ' .. int(left or guard_left())
    .. '\nholders ' .. int(number) .. '\nwaiters ' .. int(redis.call('ZCARD', QUEUE))
    .. '\nis_of_rlock ' .. (lock.foreign and is_of_rlock(guard) and '1' or '')
    .. '\ngeneration ' .. lock.generation .. '\nfence ' .. (lock.fence or '')
  for i, record in ipairs(records) do records[i] = string.sub(record, 1, MAX_RECORD) end
  return records
end

-- For a reply to a request that waits or is refused.
local function brief_view() return view(nil, MAX_REMINDED, {}) end
