package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/llm"
)

// api is chat completions.
func api() llm.API {
	return llm.API{
		New: func(rt http.RoundTripper, url string, retries bool) llm.Client {
			if retries {
				return client{newRetryingClient(rt, url)}
			}
			return client{newClient(rt, url)}
		},
		Failure: failure,
		Key:     hedgerow.Bearer,
		Path:    "/v1/chat/completions",
		Prompt: func(body []byte) string {
			var v struct{ Messages []struct{ Content string } }
			if json.Unmarshal(body, &v) != nil || len(v.Messages) != 1 {
				return ""
			}
			return v.Messages[0].Content
		},
		Answer: func(text string) string {
			return `{"id":"chatcmpl-1","object":"chat.completion","created":1772000000,"model":"comet-large","choices":` +
				`[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":` + llm.Quote(text) + `}}]}`
		},
		Error: func(message string) string {
			return fmt.Sprintf(`{"error":{"message":%q,"type":"test","param":null,"code":null}}`, message)
		},
		Model: `{"id":"comet-large","object":"model","created":1772000000,"owned_by":"nobody"}`,
		File:  `{"id":"file-1","object":"file","bytes":1,"purpose":"user_data"}`,
		Piece: func(text string) string {
			return `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1772000000,"model":"comet-large",` +
				`"choices":[{"index":0,"delta":{"content":` + llm.Quote(text) + `}}]}` + "\n\n"
		},
		Ending: "data: [DONE]\n\n",
	}
}

// azure is the same behind Azure's header.
func azure() llm.API {
	a := api()
	a.Key, a.Never = azureKey, "Authorization"
	a.New = func(rt http.RoundTripper, url string, _ bool) llm.Client { return client{newAzureClient(rt, url)} }
	return a
}

func failure(err error) (llm.Failure, bool) {
	failed, ok := errors.AsType[*openai.Error](err)
	if !ok {
		return llm.Failure{}, false
	}
	body, err := io.ReadAll(failed.Response.Body)
	return llm.Failure{
		Status: failed.StatusCode, Header: failed.Response.Header, Type: failed.Type, Message: failed.Message, Body: string(body),
	}, err == nil
}

// chat returns a request with one message.
func chat(prompt string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    "comet-large",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
	}
}

type client struct{ openai.Client }

func (c client) Ask(ctx context.Context, prompt string, header ...string) (text, raw string, err error) {
	var opts []option.RequestOption
	for pair := range slices.Chunk(header, 2) {
		opts = append(opts, option.WithHeader(pair[0], pair[1]))
	}
	res, err := c.Chat.Completions.New(ctx, chat(prompt), opts...)
	if err != nil {
		return "", "", err
	}
	return res.Choices[0].Message.Content, res.RawJSON(), nil
}

func (c client) Stream(ctx context.Context, prompt string) llm.Stream {
	return stream{c.Chat.Completions.NewStreaming(ctx, chat(prompt))}
}

func (c client) Model(ctx context.Context, name string) (string, error) {
	model, err := c.Models.Get(ctx, name)
	if err != nil {
		return "", err
	}
	return model.ID, nil
}

func (c client) Upload(ctx context.Context, data string) (string, error) {
	file, err := c.Files.New(ctx, openai.FileNewParams{
		File:    openai.File(strings.NewReader(data), "notes.txt", "text/plain"),
		Purpose: openai.FilePurposeUserData,
	})
	if err != nil {
		return "", err
	}
	return file.ID, nil
}

func (c client) Post(ctx context.Context, body any) error {
	return c.Client.Post(ctx, "chat/completions", body, nil)
}

type stream struct {
	*ssestream.Stream[openai.ChatCompletionChunk]
}

func (s stream) Next() (string, bool) {
	if !s.Stream.Next() {
		return "", false
	}
	return s.Current().Choices[0].Delta.Content, true
}
