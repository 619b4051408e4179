-- One of several servers, a member of a quorum: it grants nothing by itself. A client proposes itself
-- to each, and commits where it is nominated.
--
-- Reads:   queue, state; lock, now
-- Changes: all that admit() changes; the caller's mailbox
--
-- asking.lua lists the arguments before this.
-- ARGV[LAST + 1] ticket  the caller's, on which the servers agreed; 0 to propose one; '' to restore a hold
--                  that this server has lost

local TICKET = tonumber(ARGV[LAST + 1])

-- As early_reply(), and the reply to any copy, and to a request whose ticket or `wanted` fence is
-- implausible.
local function early_member_reply(wanted)
  local reply = early_reply()
  if reply then return reply end
  -- Two URLs of a quorum may lead to this server. Another attempt for the overtaken request would
  -- undo what the later one has done.
  if is_copy() then return busy() end
  local tickets = TICKET and math.max(TICKET, tonumber(lock.ticket) or 0) or 0
  return ahead(math.max(last_fence(), wanted or 0, tickets))
end

-- Whether older waiters whose tickets the servers agreed on keep a waiter out. A ticket that is only
-- proposed may still become a younger one.
local function is_kept_out(position, mode)
  local agreed, their_mode = 0, nil
  local older = position > 1 and redis.call('ZRANGE', QUEUE, 0, math.min(position - 2, BATCH - 1)) or {}
  for _, token in ipairs(older) do
    local details = details_of(token)
    if details.origin == 'agreed' and is_alive(details) then
      agreed, their_mode = agreed + 1, their_mode or details.mode
    end
  end
  return agreed > 0 and not admissible(mode, agreed, their_mode)
end

-- Gives the caller a position in the queue, even if it does not wait: then for the claim window. nil
-- if it must ask again.
local function join(owner)
  local ticket = enqueue(owner, TICKET)
  local head, nominated = admit()
  if lock.cleanup_pending then return nil end
  -- The reply says what a message would say.
  redis.call('DEL', MAIL)
  return { position = queue_position(), ticket = int(ticket), head = head, nominated = nominated }
end

-- The reply to a caller at this position, if it is nominated and if not:
--   { 'proposed', view, position from 1, ms to sleep, ticket, nomination() or '', whether older waiters
--     with agreed tickets keep it out: '1' or '' }
local function proposed(at, is_nominated)
  local view, position = brief_view(), at.position
  if is_nominated then
    return { 'proposed', view, position, CLAIM_WINDOW / 2, at.ticket, nomination(position), '' }
  end
  local at_most = HEARTBEAT > 0 and HEARTBEAT or CLAIM_WINDOW
  local sleep = millis_to_sleep(at_most, position - at.nominated, at.head)
  local kept_out = HEARTBEAT == 0 and is_kept_out(position, MODE) and '1' or ''
  return { 'proposed', view, position, sleep, at.ticket, '', kept_out }
end
