-- Admission: which requests are granted the lock, and in which order.
--
-- Reads:   queue, state; lock, now
-- Changes: guard, holds, queue, mailboxes; in the state 'fence', 'mode', 'guard', 'head', 'nominated',
--          the slots, details and 'skipped'; lock.nominated, lock.count, lock.live, lock.mode, lock.fence,
--          lock.cleanup_pending, own.status, own.fence; through become_idle() all of `lock` and `own`

-- Whether the present holds, and `nominated` more with the mode `their_mode`, allow a grant of this
-- mode now: 'exclusive', 'shared' or 'slots:N'.
local function admissible(mode, nominated, their_mode)
  if lock.live or nominated > 0 then
    return mode == (lock.live and lock.mode or their_mode) and mode ~= 'exclusive'
      and (mode == 'shared'
        or (lock.live and lock.count or 0) + nominated < tonumber(string.sub(mode, 7)))
  end
  return not lock.foreign
end

-- The only place that grants a lock. A lock that is exclusive stays so when its owner enters it
-- again. The caller has set the other details, including 'renewed'. One of several servers is asked
-- for a fence and a slot. `...` are more fields of the state to write.
local function grant(token, details, deadline, fence, slot, ...)
  drop_remains()
  lock.fence = next_fence(fence)
  if not lock.live or lock.mode ~= 'exclusive' then lock.mode = details.mode end
  details.slot = take_slot(slot)
  lock.count, lock.live = lock.count + 1, true
  details.fence, details.acquired, details.status = lock.fence, int(now), ''
  set_deadline(token, details, deadline, 'fence', lock.fence, 'mode', lock.mode, ...)
  if lock.skipped then redis.call('HDEL', STATE, 'skipped') end
  lock.skipped = nil
end

-- Admits waiters from the head of the queue while the lock can be granted to them, nominates them on
-- one of several servers, and drops dead ones. Runs after any change that could admit a waiter or
-- change the head. Sends one message to each waiter that is admitted, and one to the new head. Returns
-- the head, which is the first waiter that is not nominated, if it must keep waiting, and how many are
-- nominated.
local function admit()
  -- A ticket exists while there may be waiters.
  if not lock.ticket then return nil, 0 end
  local head, work, granted_to = nil, 0, {}
  local nominated, tokens, their_mode = 0, '', nil
  while true do
    head = redis.call('ZRANGE', QUEUE, nominated, nominated)[1]
    if not head then break end
    local details = details_of(head)
    local mode, asks_one_server = details.mode, details.origin == ''
    lock.cleanup_pending = lock.cleanup_pending or work == BATCH
    if not is_alive(details) and work < BATCH then
      redis.call('ZREM', QUEUE, head)
      delete_details(head)
      work = work + 1
    elseif lock.cleanup_pending or nominated == BATCH or asks_one_server and nominated > 0
      or is_ahead(last_fence())
      or not (admissible(mode, nominated, their_mode) or may_enter(details)) then
      break
    elseif asks_one_server then
      redis.call('ZREM', QUEUE, head)
      details.renewed = ''
      grant(head, details, now + CLAIM_WINDOW)
      granted_to[#granted_to + 1] = head
      work = work + 1
    else
      nominated, tokens, their_mode = nominated + 1, tokens .. head .. ' ', their_mode or mode
      nominate(head, details, nominated)
    end
  end
  if tokens ~= lock.nominated and not lock.cleanup_pending then
    lock.nominated = tokens
    redis.call('HSET', STATE, 'nominated', tokens)
  end
  if head and lock.cleanup_pending then
    wake(head)
  elseif head then
    notify_head(head)
  elseif nominated == 0 and is_free() then
    become_idle()
  end
  -- A server writes to the client of the last message first, and the new head can wait.
  for _, token in ipairs(granted_to) do wake(token) end
  return head, nominated
end
