package llm

import (
	"testing"

	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// Check runs what the APIs have in common, over HTTP/1.1 and over HTTP/2. The retries and the recorded refusals, which have
// tables of their own, are apart.
func (api API) Check(t *testing.T) {
	t.Helper()
	for name, test := range map[string]func(t *testing.T, proto string){
		"Answer":             api.testAnswer,
		"Hedge":              api.testHedge,
		"HedgedRead":         api.testHedgedRead,
		"SlowPostIsSentOnce": api.testSlowPostIsSentOnce,
		"Rotation":           api.testRotation,
		"Upload":             api.testUpload,
		"Upstreams":          api.testUpstreams,
		"CooldownEnds":       api.testCooldownEnds,
		"AllKeysCooling":     api.testAllKeysCooling,
		"Stream":             api.testStream,
		"StreamFirstByte":    api.testStreamFirstByte,
		"StreamOutlives":     api.testStreamOutlivesCooldown,
		"WaitingCallMovesOn": api.testWaitingCallMovesOn,
		"StreamClose":        api.testStreamClose,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bed.Each(t, test)
		})
	}
	t.Run("RawReaderBody", func(t *testing.T) {
		t.Parallel()
		api.testRawReaderBody(t)
	})
}
