-- The queue: positions, wake-ups, and how long a waiter sleeps. `admission` drops dead waiters.
--
-- Reads:   guard, holds, queue, state; lock, now
-- Changes: queue, the mailboxes of waiters; in the state 'head' and details of waiters; lock.notified

-- How much later than the head the second waiter checks an expired lease, in ms.
local GRACE = 500
-- How often the head checks another tool's lock, which sends no messages, in ms.
local FOREIGN_POLL = 1000

-- The mailbox of any waiter. KEYS cannot declare it, because only the script determines which waiter
-- it wakes, and asking first would cost a round trip. Its hash tag is that of the declared keys, so
-- it is in the same slot on the same server, and matches the same ACL pattern. Others see the names
-- of keys, so this one has a hash in place of the token.
local function mailbox_of(token) return string.sub(QUEUE, 1, -6) .. 'mail:' .. redis.sha1hex(token) end

-- The message is 'head' for a new head, its nomination() for a nominated waiter, or nil for any other.
local function wake(token, message)
  local mailbox = mailbox_of(token)
  local length = redis.pcall('RPUSH', mailbox, message or 'look')
  -- Only that waiter must fail, whose BLPOP does.
  if is_wrong_type(length) then return end
  if type(length) == 'table' then return redis.call('RPUSH', mailbox, message or 'look') end
  redis.call('PEXPIREAT', mailbox, int(now + 2 * CLAIM_WINDOW))
end

-- Only the head of the queue watches for the end of a lease. A new head learns that it is the head
-- from a message, or from the reply to its own call.
local function notify_head(head)
  if head == lock.notified then return end
  lock.notified = head
  redis.call('HSET', STATE, 'head', head)
  if head ~= TOKEN then wake(head, 'head') end
end

-- The score of a waiter with --next is its ticket minus this offset, which sorts it first. Tickets,
-- which are microseconds at most, stay smaller until the year 2112.
local NEXT_OFFSET = 2 ^ 52

local function is_next(score) return tonumber(score) < 0 end

local function ticket_of(score) return tonumber(score) + (is_next(score) and NEXT_OFFSET or 0) end

-- Whether a waiter with these details is presumed alive.
local function is_alive(details) return (tonumber(details.alive) or 0) >= now end

-- Removes a waiter, and a grant that it did not claim. Its next request learns how and by whom.
local function remove_waiter(token, how, by)
  local ttl = tonumber(details_of(token).ttl) or 0
  if unexpired_hold(token) then drop_hold(token) end
  redis.call('ZREM', QUEUE, token)
  delete_details(token)
  mark_ended(token, ttl, how, by)
  if token ~= TOKEN then wake(token) end
end

-- Wakes the first waiter that is alive, so that it asks for the lock.
local function wake_first()
  local waiters = lock.ticket and redis.call('ZRANGE', QUEUE, 0, BATCH - 1) or {}
  for _, token in ipairs(waiters) do
    if is_alive(details_of(token)) then return wake(token) end
  end
  if #waiters == 0 and is_free() then become_idle() end
end

-- The end of the lease that a head with this mode waits for: the last one if it needs the lock
-- alone, else the first one. Beside an exclusive hold may be others (see settle_mode()), which it can
-- join once the exclusive one ends, and that one may end first.
local function awaited(mode)
  local joins = (mode == lock.mode or lock.mode == 'exclusive') and mode ~= 'exclusive'
  local which = joins and 0 or -1
  return tonumber(redis.call('ZRANGE', HOLDS, which, which, 'WITHSCORES')[2]) + 1
end

-- How many milliseconds the caller sleeps at most, unless a message wakes it. The head watches for the
-- end of a lease, or of the time that a nominated waiter has. The second, after this head, checks a
-- little later, in case the head is dead. Any other waiter gets a message when it becomes the head. The
-- position does not count the waiters that are nominated.
local function millis_to_sleep(at_most, position, head)
  local sleep = at_most
  if position <= 2 and lock.nominated ~= '' then
    sleep = math.min(sleep, CLAIM_WINDOW + (position - 1) * GRACE)
  end
  if position == 1 and lock.foreign then
    local left = guard_left()
    sleep = math.min(sleep, FOREIGN_POLL, left >= 0 and left + 1 or FOREIGN_POLL)
  elseif position <= 2 and lock.live then
    local mode = details_of(position == 2 and head or TOKEN).mode
    sleep = math.min(sleep, awaited(mode) + (position - 1) * GRACE - now)
  end
  return math.max(sleep, 1)
end
