-- Nomination: which waiters of several servers may have the lock now.
--
-- Reads:   state; lock, now, micros
-- Changes: mailboxes; in the state details of waiters

-- On one of several servers, a waiter is not granted the lock but nominated: it may now commit, that
-- is, ask this server for a hold. It does so once enough servers have nominated it. A nomination is
-- only a hint. It passes to an older waiter that arrives later, and lapses unless the waiter asks
-- again in time.
local function is_nominated(token)
  return string.find(' ' .. lock.nominated, ' ' .. token .. ' ', 1, true) ~= nil
end

-- What a nominated waiter needs to commit, as text: the fence that it would get, its position, and
-- the bits of the slots that are taken.
local function nomination(position) return next_fence() .. ' ' .. position .. ' ' .. taken_slots() end

local function nominate(token, details, position)
  if token ~= TOKEN and is_nominated(token) then return end
  -- The waiter must ask again within the claim window.
  details.alive = int(math.min(tonumber(details.alive), now + CLAIM_WINDOW))
  write_details(token, details)
  if token ~= TOKEN then wake(token, nomination(position)) end
end
