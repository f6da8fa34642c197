// Package hedgerow makes HTTP calls to slow, flaky or rate-limited services fast and dependable. Its [Transport] is an
// [http.RoundTripper] that races a second attempt against a slow one; its [Pool] rotates keys and upstreams. Both stop
// when they would hurt. They work together or alone, in front of one shared [http.Transport].
//
//	tr, err := hedgerow.New(hedgerow.Config{})
//	client := &http.Client{Transport: tr}
//
// This alone works: it learns the latency of each host and hedges the calls that are safe to send twice. Endpoints
// that differ are told apart by patterns:
//
//	err = tr.Register("GET /v1/users/{id}", hedgerow.EndpointConfig{})
//
// # How it differs from a bare transport
//
//  1. A call that may be sent more than once and is slower than most calls of its endpoint gets a second attempt, and then
//     a third: the first acceptable response wins. GET, HEAD, OPTIONS and TRACE may, and so may calls with an
//     Idempotency-Key or X-Idempotency-Key header, and what [EndpointConfig] or [Call] declares Idempotent.
//  2. What an endpoint is slow against is learned: no hedge delay has to be set. See [HedgeConfig].
//  3. Over any span hedges never exceed a share of the calls, 10 % by default, and what two seconds of them earn, at
//     least one, at any rate and in any outage.
//  4. No hedge goes to a host or an endpoint that fails: see [BreakerConfig]; nor to a host that has asked for less by
//     a 429, or by a 503 that says for how long.
//
// Nothing else changes. A response is never turned into an error; redirects, cookies, compression, trailers, upgrades
// and streams work as over the transport below. A call that cannot be hedged passes straight through. With one attempt
// the error of the base transport is returned as it is.
//
// # The life of a call
//
//  1. The endpoint is found, by name or by pattern, and with it all that was learned for it and the host.
//  2. The gates: hedging switched off, a call that may not be sent twice, a body that cannot be, an upgrade, a deadline
//     that leaves no room. A call that is refused passes through. Each refusal is counted under its [SkipReason].
//  3. The primary is sent in the caller's goroutine, and a timer is set to the hedge delay.
//  4. When the timer fires first, the gates that may change their mind are asked: [Transport.SetHedging], push-back, the
//     circuits of host and endpoint, the budget. If they agree, a deep clone of the request is sent as a hedge. If they
//     refuse, the call asks again at the next multiple of the delay, up to eight times in all.
//  5. The first response that [HedgeConfig].Accept takes wins; an error or another response waits for the attempts in
//     flight. When all have failed, the outcome of the primary is returned. Losers are cancelled with the cause
//     [ErrSuperseded], and closed off the caller's path.
//  6. The winner's context lives until its body has ended: by an error, by Close, or by EOF, and then until the base is
//     through with the request body. As with any RoundTripper, the caller must close the body.
//
// # The life of a call in a pool
//
//  1. A call to a host that is not the pool's passes through untouched.
//  2. A resource is picked and the attempt registered on it, in one step. With nothing eligible the call waits, if it may.
//  3. The attempt is a copy of the request with the resource's URL and credential. The caller's is never changed.
//  4. The outcome gets a [Verdict]: the resource rests, is taken out, or neither, and the outcome is the call's, or another
//     resource is tried. A repeat is made only where it is safe: see [PoolConfig] and [DefaultClassifier].
//  5. The slot is held until the response body has ended.
//
// Under a Transport a hedge takes a resource that its call does not use, and is not sent if there is none; its delay
// counts from when the primary is sent, not from when it begins to wait for a resource. Of nested pools the outermost counts,
// so a wait in one beneath is latency to the Transport.
//
// # What is learned
//
// The latency of primaries that succeed goes to a sketch over the last 30 to 60 seconds; a primary that was cancelled
// because a hedge won counts as a sample that would have taken longer (see package sketch). Failures are not learned
// from. The hedge delay is the smallest one at or above [HedgeConfig].Quantile at which the hedges that calls ask for
// fit the budget.
//
// When two checks in a row, of a second or more each, contradict the sketch, because too many or too few calls take longer
// than the delay for that to be chance, what was learned before is dropped. The delay stays in force until a new one is
// learned.
//
// # Concurrency
//
// Everything exported is safe for concurrent use, also [Transport.Register] while calls are running. The Transport
// starts no goroutine but for attempts and for closing what they leave behind, has no background work and needs no
// closing. [Hooks] run without any lock held; functions that decide something ([HedgeConfig].Accept,
// [BreakerConfig].Failure) may run concurrently, and a panic in them surfaces in the goroutine that called RoundTrip.
//
// # Limits
//
//   - A hedge that loses on HTTP/1.1 costs its connection, because a request cannot be cancelled in any other way.
//     HTTP/2 resets the stream.
//   - Without [Config].Detach a call returns when its primary does, so the base transport should honour contexts, as
//     [http.Transport] does.
//   - A caller's [httptrace.ClientTrace] sees every attempt. Its functions may run concurrently, and after RoundTrip
//     has returned.
//   - An [http.Client] with a Timeout starts a goroutine per request over any RoundTripper but an [http.Transport]. A
//     context with a deadline is cheaper.
//   - The cookie jar of an [http.Client] and its redirects are above the Transport: each hop is a call of its own.
//
// # Words
//
// A call is one RoundTrip as the caller sees it; an attempt is one send through the base transport on its behalf. The
// primary is the first attempt, a hedge one that is started while another is in flight. The winner is the attempt whose
// outcome is returned, the others are losers. An endpoint is a registered pattern, with what was learned for it per
// host; calls that match none share an endpoint per host. The budget is a token bucket of hedges as a share of calls. A
// circuit is closed, open or half-open, and watches a host or an endpoint. A resource is one key, upstream or proxy of a
// pool. A retry is an attempt started after another one ended badly. A verdict is what an outcome says of the resource; a
// cooldown is its rest until a known instant.
//
// Numbers in configurations: zero means the default, a negative one or one out of range is an error, unless the field
// says otherwise.
package hedgerow
