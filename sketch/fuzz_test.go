package sketch_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow/sketch"
)

// FuzzSketchMerge draws a duration from every two bytes, spread over a factor of 65 536 that starts at 2^scale
// microseconds, and rotates after the first split of them.
func FuzzSketchMerge(f *testing.F) {
	f.Add([]byte{0, 0}, uint8(0), uint8(0), uint8(50))
	f.Add([]byte("a few samples of various sizes"), uint8(5), uint8(7), uint8(90))
	f.Add([]byte{0xff, 0xff, 0x00, 0x00, 0xf0, 0x0f, 0x0f, 0xf0, 0x80, 0x01}, uint8(20), uint8(2), uint8(100))
	f.Fuzz(func(t *testing.T, data []byte, scale, split, percent uint8) {
		const accuracy = 0.01
		data = data[:min(len(data), 1024)] // longer inputs only make the fuzzer slow
		unit := float64(time.Microsecond) * math.Pow(2, float64(scale%32))
		var samples []time.Duration
		for ; len(data) >= 2; data = data[2:] {
			x := binary.LittleEndian.Uint16(data)
			samples = append(samples, time.Duration(unit*math.Pow(2, float64(x)/4096)))
		}
		if len(samples) == 0 {
			return
		}
		merged, single := newWindow(t, accuracy, time.Second), newWindow(t, accuracy, time.Second)
		for k, d := range samples {
			now := epoch
			if k >= int(split) {
				now = epoch.Add(time.Second)
			}
			merged.Add(now, d)
			single.Add(epoch, d)
		}
		now := epoch.Add(time.Second) // a window that had no sample before it starts here
		q := float64(percent) / math.MaxUint8
		qs := []float64{0, q, 1}
		got, n := quantiles(merged, now, qs...)
		require.EqualValues(t, len(samples), n)
		union, _ := quantiles(single, epoch, qs...)
		require.Equal(t, union, got)
		require.Equal(t, survivalOf(single, epoch).At(got[1]), survivalOf(merged, now).At(got[1])) //nolint:testifylint // the same sums, to the bit

		slices.Sort(samples)
		for k, q := range qs {
			requireWithin(t, exact(samples, q), got[k], accuracy, "q=%v of %d", q, len(samples))
		}
	})
}

// FuzzWindow reads operations of eleven bytes: what to do, a step in time and a duration, both also negative.
func FuzzWindow(f *testing.F) {
	f.Add([]byte("0ssss123456"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x01\x02\x03\x04\x05\x06" + "\x01\xff\xff\xff\xff\x01\x02\x03\x04\x05\x06"))
	f.Add([]byte("\x01\x00\x00\x00\x00\xff\xff\xff\xff\xff\x7f" + "\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00" + "\x03\xff\xff\xff\x7f\x00\x00\x00\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		const op = 11
		data = data[:min(len(data), 32*op)] // longer inputs only make the fuzzer slow
		w := newWindow(t, 0.01, time.Second)
		now, adds := epoch, uint64(0)
		var s sketch.Survival
		for ; len(data) >= op; data = data[op:] {
			step := int32(binary.LittleEndian.Uint32(data[1:]))
			now = now.Add(time.Duration(step))
			var wide [8]byte
			copy(wide[2:], data[5:op])
			d := time.Duration(binary.LittleEndian.Uint64(wide[:])) >> (data[0] >> 2) // every magnitude
			switch data[0] & 3 {
			case 0:
				w.Add(now, d)
				adds++
			case 1:
				w.AddCensored(now, d)
				adds++
			case 2:
				now = now.Add(time.Duration(step) * 8) // several widths at once
			}

			count := w.Count(now)
			require.LessOrEqual(t, count, adds)
			got, completed := quantiles(w, now, 0, 0.5, 0.9, 1)
			require.LessOrEqual(t, completed, count)
			require.True(t, slices.IsSorted(got))
			w.Survival(now, &s)
			require.Equal(t, count, s.Count())
			before := 1.0
			for at := time.Duration(1); at < math.MaxInt64/3; at += at/3 + 1 {
				share := s.At(at)
				if share < 0 || share > before {
					require.Failf(t, "not monotone in [0, 1]", "At(%v) is %v after %v", at, share, before)
				}
				before = share
			}
			if at, ok := s.Quantile(0.9); ok {
				require.LessOrEqual(t, s.At(at), 0.1+1e-8)
			} else {
				require.True(t, count == 0 || s.At(math.MaxInt64) > 0.1)
			}
		}
		_, size, limit := w.Arrays()
		require.LessOrEqual(t, size, limit)
	})
}
