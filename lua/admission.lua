-- Admission: which requests are granted the lock, and in which order.
--
-- Reads:   queue, state; lock, now
-- Changes: guard, holds, queue, mailboxes; in the state 'fence', 'mode', 'guard', 'head', the counters
--          and details; lock.count, lock.live, lock.mode, lock.fence, lock.leftovers, own.standing,
--          own.fence; through become_idle() all of `lock` and `own`

-- Whether the present holds allow a grant of this mode now: 'exclusive', 'shared' or 'slots:N'.
local function admissible(mode)
  if lock.live then
    return mode == lock.mode and mode ~= 'exclusive' and lock.reinstated == 0
      and (mode == 'shared' or lock.count < tonumber(string.sub(mode, 7)))
  end
  return not lock.foreign
end

-- The only place that grants a lock. A lock that is exclusive stays so when its owner enters it
-- again. `named_owner` is the owner if a user chose it. `...` are more details to write, 'renewed'
-- among them.
local function grant(token, mode, deadline, wanted, named_owner, ...)
  drop_remains()
  lock.fence = next_fence(wanted)
  if not lock.live or lock.mode ~= 'exclusive' then lock.mode = mode end
  lock.count, lock.live = lock.count + 1, true
  set_deadline(token, deadline, 'fence', lock.fence, 'mode', lock.mode, token .. ':fence', lock.fence,
    token .. ':acquired', int(now), ...)
  if named_owner then change_owner_count(named_owner, 1) end
  if token == TOKEN then own.fence, own.standing = lock.fence, nil end
end

-- Admits waiters from the head of the queue while the lock can be granted to them, and drops dead
-- waiters. Sends one message to each waiter that is granted, and one to the new head. Runs after
-- any change that could admit a waiter or change the head. Returns the head if it must keep
-- waiting.
local function admit()
  -- A ticket exists while there may be waiters.
  if not lock.ticket then return nil end
  for _ = 1, BATCH do
    local head = redis.call('ZRANGE', QUEUE, 0, 0)[1]
    if not head then
      if not lock.live and not lock.foreign and lock.count == 0 then become_idle() end
      return nil
    end
    local mode, alive, owner, named, reentrant = unpack(redis.call('HMGET', STATE,
      head .. ':mode', head .. ':alive', head .. ':owner', head .. ':named', head .. ':reentrant'))
    if tonumber(alive or 0) < now then
      redis.call('ZREM', QUEUE, head)
      delete_details(head)
    elseif lock.leftovers then
      wake(head)
      return head
    elseif not is_ahead(last_fence())
      and (admissible(mode) or may_enter(mode, owner, named, reentrant)) then
      redis.call('ZREM', QUEUE, head)
      grant(head, mode, now + CLAIM_WINDOW, 0, named and owner, head .. ':renewed', '')
      wake(head)
    else
      notify_head(head)
      return head
    end
  end
  local rest = redis.call('ZRANGE', QUEUE, 0, 0)[1]
  if rest then
    lock.leftovers = true
    wake(rest)
  end
  return rest
end
