package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
)

// roleEnv holds the role of a process that this program has started of itself.
const roleEnv = "HEDGEROW_BENCH_ROLE"

// A role is that of the server or of a client. Orders come on the standard input, each is answered on the standard
// output.
type role struct {
	Server  bool    `json:"server,omitempty"`
	Setting setting `json:"setting"`
	Address string  `json:"address,omitempty"` // of the server
}

type verb string

const (
	toWarm    verb = "warm"
	toMeasure verb = "measure"
	toRest    verb = "rest"
	toCount   verb = "count"
)

// An order is about one lane.
type order struct {
	Verb      verb   `json:"verb"`
	Contender string `json:"contender,omitempty"`
	Lane      string `json:"lane"`
}

// A reply has what was asked for.
type reply struct {
	Address string `json:"address,omitempty"`
	Count   int64  `json:"count,omitempty"`
	Sample  sample `json:"sample"`
	Rest    rest   `json:"rest"`
}

// play is a process with that role. It ends when there are no more orders.
func play(text string, in io.Reader, out io.Writer) error {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return fmt.Errorf("%s: %w", roleEnv, err)
	}
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	if r.Server {
		return serve(orders, answers)
	}
	return obey(r, orders, answers)
}

// obey is a process that is a client.
func obey(r role, orders *json.Decoder, answers *json.Encoder) error {
	lanes := map[string]*lane{}
	before := runtime.NumGoroutine()
	for {
		var o order
		err := orders.Decode(&o)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l := lanes[o.Lane]
		if l == nil {
			c, found := contenderByName(o.Contender)
			if !found {
				return fmt.Errorf("no such contender: %q", o.Contender)
			}
			if l, err = newLane(r.Setting, c, r.Address, o.Lane); err != nil {
				return err
			}
			lanes[o.Lane] = l
		}
		var answer reply
		switch o.Verb {
		case toWarm:
			err = l.warm()
		case toMeasure:
			answer.Sample, err = l.measure()
		case toRest:
			answer.Rest = l.rest(before)
		default:
			err = fmt.Errorf("no such order: %q", o.Verb)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", o.Contender, err)
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}
