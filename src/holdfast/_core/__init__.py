"""The core: from a call of ``acquire`` to the end of the hold. Written once, for every engine and every runtime.

It knows engines by their port (``holdfast.engines.base``) and time by the runtime's (``holdfast._runtime.base``).
Terms: a *claim* says what is wanted, an *attempt* is the engine's side of it, a *grant* is what the engine gave, a
*hold* is a grant that is in use here, and a *handle* is one caller's lease on it. Read ``core.py`` first, then
``acquisition.py``.

One call:

* ``core``: one open client: its sessions, its holds, how they begin and end, how the client closes
* ``policy``: what a Lock object is made of: a name and how to hold it
* ``direct_acquire``: what nearly every acquire is: one request, granted by the first answer
* ``acquisition``: any other acquire: the local queue, then the engine; ``acquire_errors``: why it has failed;
  ``acquire_time``: how long its requests may take
* ``local_queue``: the waiters inside this process, and hand-over without a round trip; ``local_turn``: one caller's way
  through it
* ``shared_looks``: one request for all sleeping waiters of conditions
* ``installing``: how what was granted becomes a hold
* ``releasing``: one release: to the next local waiter or the engine, finished also if it is interrupted;
  ``giving_back``: the request for it
* ``renewing``: renewal on the user's request; what a batch of renewals brought
* ``operators``, ``breaking``: inspect, list, ping; take a lock away by force

What they work on:

* ``grant``, ``hold``: a grant with its deadline and tokens; a hold with its handles and its loss;
  ``direct_hold``: one that is there before its grant
* ``states``: the states of a hold, and the only place where one follows from the other
* ``lease_time``: deadlines, margins, when to renew; pure
* ``retry``: the only retry loop: back-off, limits, and the errors of giving up; pure but for the sleep
* ``blocks``: which lease belongs to which open ``with`` block
* ``call_site``: the user's line that acquired a lease

In the background:

* ``watchdog``: renews, notices losses, withdraws; one thread for each client
* ``withdrawals``: the attempts that it has still to withdraw
* ``retention``: holds that outlast their callers (``at_least``)
* ``operations``, ``repairs``: calls under way, and what interrupted ones left undone
* ``lifecycle``: fork and interpreter exit
* ``logs``: logging from threads that must not wait
"""
