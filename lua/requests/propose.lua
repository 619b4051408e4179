-- Asks one of several servers for a position in its queue.
--
-- asking.lua and member.lua list the arguments.
--
-- Replies: proposed(), and those of acquire.lua except 'queued'. 'ahead' is for a ticket too.

reconcile()
local early = early_member_reply()
if early then return early end
-- A client that still asks has not started its command, so a hold that was revoked meanwhile can go;
-- once it has a ticket, so can one that too few servers granted.
if (TICKET > 0 or hold_state(own) == 'revoked') and unexpired_hold(TOKEN) then drop_hold(TOKEN) end
local superseded = supersede(TICKET)
if superseded then return superseded end

if valid_hold() then return hold_again() end
local refused, owner, entry_mode = find_owner()
if refused then return refused end
local at = join(owner)
if not at then return { 'again' } end
return proposed(at, entry_mode or is_nominated(TOKEN))
