package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// A process is one that this program has started of itself.
type process struct {
	cmd     *exec.Cmd
	in      io.Closer
	orders  *json.Encoder
	answers *json.Decoder
	said    strings.Builder // on the standard error
}

// start starts a process with that role.
func start(ctx context.Context, r role) (*process, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self)} //nolint:gosec // itself
	p.cmd.Env = append(os.Environ(), roleEnv+"="+string(text))
	if r.Setting.Procs > 0 {
		p.cmd.Env = append(p.cmd.Env, "GOMAXPROCS="+strconv.Itoa(r.Setting.Procs))
	}
	p.cmd.Stderr = &p.said
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.orders, p.answers = in, json.NewEncoder(in), json.NewDecoder(out)
	return p, p.cmd.Start()
}

// hear returns the next answer.
func (p *process) hear() (reply, error) {
	var answer reply
	if err := p.answers.Decode(&answer); err != nil {
		return reply{}, errors.Join(err, p.stop())
	}
	return answer, nil
}

// ask gives an order and returns the answer.
func (p *process) ask(o order) (reply, error) {
	if err := p.orders.Encode(o); err != nil {
		return reply{}, errors.Join(err, p.stop())
	}
	return p.hear()
}

// stop ends the process. It may be called again.
func (p *process) stop() error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(p.said.String()))
	}
	return nil
}
