package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/hedgerow-go/hedgerow/integration/internal/llm"
)

// api is messages.
func api() llm.API {
	return llm.API{
		New: func(rt http.RoundTripper, url string, retries bool) llm.Client {
			if retries {
				return client{newRetryingClient(rt, url)}
			}
			return client{newClient(rt, url)}
		},
		Failure: failure,
		Key:     apiKey,
		Path:    "/v1/messages",
		Prompt: func(body []byte) string {
			var v struct {
				Messages []struct{ Content []struct{ Text string } }
			}
			if json.Unmarshal(body, &v) != nil || len(v.Messages) != 1 || len(v.Messages[0].Content) != 1 {
				return ""
			}
			return v.Messages[0].Content[0].Text
		},
		Answer: func(text string) string {
			return `{"id":"msg_1","type":"message","role":"assistant","model":"comet-large","stop_reason":"end_turn",` +
				`"content":[{"type":"text","text":` + llm.Quote(text) + `}],"usage":{"input_tokens":1,"output_tokens":1}}`
		},
		Error: func(message string) string {
			return fmt.Sprintf(`{"type":"error","error":{"type":"test_error","message":%q}}`, message)
		},
		Model: `{"id":"comet-large","type":"model","display_name":"Comet","created_at":"2026-02-17T00:00:00Z"}`,
		File:  `{"id":"file-1","type":"file","filename":"notes.txt","mime_type":"text/plain","size_bytes":1}`,
		Opening: event(`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",`+
			`"model":"comet-large","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`) +
			event(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) +
			event(`{"type":"ping"}`),
		Piece: func(text string) string {
			return event(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":` + llm.Quote(text) + `}}`)
		},
		Ending: event(`{"type":"content_block_stop","index":0}`) +
			event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`) +
			event(`{"type":"message_stop"}`),
	}
}

// event is one of a stream, whose name is the type of its data.
func event(data string) string {
	_, name, _ := strings.Cut(data, `"type":"`)
	name, _, _ = strings.Cut(name, `"`)
	return "event: " + name + "\ndata: " + data + "\n\n"
}

func failure(err error) (llm.Failure, bool) {
	failed, ok := errors.AsType[*anthropic.Error](err)
	if !ok {
		return llm.Failure{}, false
	}
	body, err := io.ReadAll(failed.Response.Body)
	return llm.Failure{
		Status: failed.StatusCode, Header: failed.Response.Header, Type: string(failed.Type()), Message: failed.RawJSON(),
		Body: string(body),
	}, err == nil
}

// ask returns a request with one message.
func ask(prompt string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model:     "comet-large",
		MaxTokens: 1024,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
	}
}

type client struct{ anthropic.Client }

func (c client) Ask(ctx context.Context, prompt string, header ...string) (text, raw string, err error) {
	var opts []option.RequestOption
	for pair := range slices.Chunk(header, 2) {
		opts = append(opts, option.WithHeader(pair[0], pair[1]))
	}
	res, err := c.Messages.New(ctx, ask(prompt), opts...)
	if err != nil {
		return "", "", err
	}
	return res.Content[0].Text, res.RawJSON(), nil
}

func (c client) Stream(ctx context.Context, prompt string) llm.Stream {
	return &stream{Stream: c.Messages.NewStreaming(ctx, ask(prompt))}
}

func (c client) Model(ctx context.Context, name string) (string, error) {
	model, err := c.Models.Get(ctx, name, anthropic.ModelGetParams{})
	if err != nil {
		return "", err
	}
	return model.ID, nil
}

func (c client) Upload(ctx context.Context, data string) (string, error) {
	file, err := c.Files.Upload(ctx, anthropic.FileUploadParams{
		File: anthropic.File(strings.NewReader(data), "notes.txt", "text/plain"),
	})
	if err != nil {
		return "", err
	}
	return file.ID, nil
}

func (c client) Post(ctx context.Context, body any) error {
	return c.Client.Post(ctx, "v1/messages", body, nil)
}

// A stream is also accumulated, as programs do.
type stream struct {
	*ssestream.Stream[anthropic.MessageStreamEventUnion]

	message anthropic.Message
	text    string
	err     error
}

func (s *stream) Next() (string, bool) {
	for s.err == nil && s.Stream.Next() {
		event := s.Current()
		s.err = s.message.Accumulate(event)
		if event.Type == "content_block_delta" {
			s.text += event.Delta.Text
			return event.Delta.Text, true
		}
	}
	return "", false
}

func (s *stream) Err() error {
	if err := errors.Join(s.err, s.Stream.Err()); err != nil {
		return err
	}
	if got := s.message.Content[0].Text; got != s.text {
		return fmt.Errorf("%d bytes were accumulated of %d", len(got), len(s.text))
	}
	return nil
}
