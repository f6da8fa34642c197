package hedgerow

import (
	"net/http"
	"time"
)

// PushbackCore lets tests reach what a host has asked for.
type PushbackCore struct{ p pushback }

func (c *PushbackCore) Note(now time.Time, resp *http.Response) { c.p.note(now, resp) }
func (c *PushbackCore) Active(now time.Time) bool               { return c.p.active(now) }
