-- Asks one of several servers for a hold, if it nominates the caller; or to restore one that it has
-- lost, which needs no turn.
--
-- asking.lua and member.lua list the arguments before these.
-- ARGV[LAST + 2] fence  of the hold, unless a larger one was granted here
-- ARGV[LAST + 3] slot   in a lock with slots: the number of the hold; else ''
--
-- Replies: as of propose.lua. 'ahead' is for the fence too.

local WANTED = tonumber(ARGV[LAST + 2])
local SLOT = tonumber(ARGV[LAST + 3])

reconcile()
local early = early_member_reply(WANTED)
if early then return early end
-- A hold that was revoked here meanwhile, or that ended before its lease expired, is not granted again.
if not valid_hold() then
  local how = recorded(TOKEN)
  if unexpired_hold(TOKEN) or how and how ~= 'expired' then return busy() end
end
if SLOT and own.slot ~= ARGV[LAST + 3] and unexpired_hold(TOKEN) then drop_hold(TOKEN) end
local superseded = supersede(TICKET or 0)
if superseded then return superseded end
if not TICKET then admit() end
if lock.cleanup_pending then return { 'again' } end

if valid_hold() then
  if tonumber(own.fence) ~= WANTED then
    lock.fence = next_fence(WANTED)
    own.fence = lock.fence
  end
  return hold_again()
end
if SLOT and is_taken(taken_slots(), SLOT) then return busy() end
local refused, owner, entry_mode = find_owner()
if refused then return refused end
if not TICKET then
  return (entry_mode or admissible(MODE, 0)) and take(owner, WANTED, SLOT) or busy()
end
local at = join(owner)
if not at then return { 'again' } end
if not (entry_mode or is_nominated(TOKEN)) then return proposed(at) end
-- admit() may have granted the slot to a waiter.
if SLOT and is_taken(taken_slots(), SLOT) then return busy() end
return take(owner, WANTED, SLOT)
