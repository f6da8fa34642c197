package hedgerow

import (
	"net/http"
	"time"
)

// An Action is what a [Verdict] does.
type Action int

const (
	// ActionDefault leaves the decision to [DefaultClassifier]: a classifier without an opinion returns Verdict{}.
	ActionDefault Action = iota
	// ActionOK passes the outcome on. The resource works: its escalation and failure count are cleared, a probe succeeds.
	ActionOK
	// ActionNeutral passes the outcome on. It says nothing about the resource.
	ActionNeutral
	// ActionRetry goes to the next resource, without a change of state.
	ActionRetry
	// ActionCooldown rests the resource for Wait, or by the table, and goes to the next one. A response that is judged so counts
	// as a refusal before the server acted: the call is repeated whatever its method. Return it for others, such as a 502,
	// only if the call may be sent twice: see Outcome.Replayable. A transport error is repeated only for such a call, or if no
	// connection was had, whatever the verdict.
	ActionCooldown
	// ActionDisable takes the resource out until [Pool.Enable], or until a probe after [PoolConfig].ProbeDisabled succeeds,
	// and goes to the next one, as ActionCooldown does.
	ActionDisable
)

// String returns default, ok, neutral, retry, cooldown or disable.
func (a Action) String() string {
	return enumName("Action", int(a), "default", "ok", "neutral", "retry", "cooldown", "disable")
}

// MarshalText returns what String returns.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// A VerdictScope says what a verdict applies to.
type VerdictScope int

const (
	// ScopeDefault is ScopeKey for cooldowns and ScopeResource for the rest.
	ScopeDefault VerdictScope = iota
	// ScopeResource is the resource, for all calls.
	ScopeResource
	// ScopeKey is the resource, for calls with the same scope key; for a call without one, the resource.
	ScopeKey
	// ScopeGroup is every resource with the same Group; without a group, the resource.
	ScopeGroup
	// ScopeGroupKey is every resource with the same Group, for calls with the same scope key; it falls back as the two
	// above.
	ScopeGroupKey
)

// String returns default, resource, key, group or group_key.
func (s VerdictScope) String() string {
	return enumName("VerdictScope", int(s), "default", "resource", "key", "group", "group_key")
}

// MarshalText returns what String returns.
func (s VerdictScope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Verdict is what the outcome of an attempt says about its resource. The zero value has no opinion.
type Verdict struct {
	// Action is what is done; zero: what [DefaultClassifier] says, and the other fields are ignored.
	Action Action
	// Wait is the rest of an ActionCooldown; zero or negative: by [PoolConfig].CooldownTable. It is clamped to MaxCooldown.
	Wait time.Duration
	// Scope is what a cooldown or a disable applies to; zero: see ScopeDefault.
	Scope VerdictScope
	// Reason is free text for events and snapshots; default "". It must not hold a secret.
	Reason string
}

// An Outcome is what an attempt ended with, for a [Classifier].
type Outcome struct {
	// Request is the caller's request; read only.
	Request *http.Request
	// Response is the response, nil if Err is set. Its Body must not be read.
	Response *http.Response
	// Body is the beginning of the response body: see [PoolConfig].PeekBody.
	Body []byte
	// Err is what the base transport returned.
	Err error
	// Attempt says which attempt it was, and on which resource.
	Attempt Attempt
	// ScopeKey is that of the call; "": none.
	ScopeKey string
	// Replayable says that the call may be sent more than once: by its method or an Idempotency-Key, or because its Call or
	// its endpoint declares it.
	Replayable bool
	// Now is the time of the outcome.
	Now time.Time
}

// A Classifier turns an outcome into a verdict. It may run concurrently, without any lock held. It is not asked about
// attempts whose caller gave up, about attempts cancelled by a sibling, about an error of the request's own body, nor about an
// *ExhaustedError of a pool beneath, which ends the call: there [PoolConfig].Synthetic429 makes it a response.
type Classifier func(Outcome) Verdict

// Classifiers returns a Classifier that asks each of cs until one has an opinion. nil ones are left out.
func Classifiers(cs ...Classifier) Classifier {
	return func(o Outcome) Verdict {
		for _, c := range cs {
			if c == nil {
				continue
			}
			if v := c(o); v.Action != ActionDefault {
				return v
			}
		}
		return Verdict{}
	}
}

// DefaultClassifier goes by status and headers alone: 429 cools, for the time of [RetryHint] or by the table, and so does
// 503 with a hint; 401 and 402 disable; 502, 503 without a hint, 504 and transport errors go to the next resource. Of
// the rest everything below 500 is OK and everything else neutral.
func DefaultClassifier(o Outcome) Verdict {
	if o.Response == nil {
		return Verdict{Action: ActionRetry, Reason: "transport error"}
	}
	status := o.Response.StatusCode
	switch status {
	case http.StatusTooManyRequests:
		wait, _ := RetryHint(o.Response.Header, o.Now) // 0 if there is none: by the table
		return Verdict{Action: ActionCooldown, Wait: wait, Reason: "status 429"}
	case http.StatusServiceUnavailable:
		wait, hinted := RetryHint(o.Response.Header, o.Now)
		if !hinted {
			return Verdict{Action: ActionRetry, Reason: "status 503"}
		}
		return Verdict{Action: ActionCooldown, Wait: wait, Reason: "status 503 with a wait hint"}
	case http.StatusUnauthorized:
		return Verdict{Action: ActionDisable, Reason: "status 401"}
	case http.StatusPaymentRequired:
		return Verdict{Action: ActionDisable, Reason: "status 402"}
	case http.StatusBadGateway:
		return Verdict{Action: ActionRetry, Reason: "status 502"}
	case http.StatusGatewayTimeout:
		return Verdict{Action: ActionRetry, Reason: "status 504"}
	}
	if status >= http.StatusInternalServerError {
		return Verdict{Action: ActionNeutral}
	}
	return Verdict{Action: ActionOK}
}
