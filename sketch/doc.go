// Package sketch answers "how slow is slow" for one endpoint: quantiles and a survival curve of the latencies seen
// lately, in a few KiB, without a goroutine and without a clock of its own.
//
// # The sketch
//
// A DDSketch (Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error
// guarantees", VLDB 2019) counts samples in buckets whose bounds grow by a constant factor. The middle of a bucket is
// therefore within a fixed share, the relative accuracy, of everything the bucket holds, and so is every quantile
// read from it, whatever the distribution. Two sketches over the same buckets merge by adding counts, without loss.
//
// # Windows
//
// A [Window] forgets: it holds two generations of counts. Samples go into the current one; once that is a width old
// it becomes the previous one and the oldest counts are cleared. What is read is the sum of both, so it covers
// between one and two widths. Rotation happens on use, by the time the caller passes in. A time before one already
// seen changes nothing: its samples join the current generation. [Window.Forget] drops both at once.
//
// # Censored samples
//
// A call that was cancelled after 20 ms says "at least 20 ms", not "20 ms". Such a sample is right-censored. Counting
// it as a completion pretends that slow calls end just where they are cut off; leaving it out pretends that they never
// happened. [Window.AddCensored] keeps it in counts of its own, and [Window.Survival] weighs both kinds with the
// product-limit estimate (Kaplan and Meier, "Nonparametric estimation from incomplete observations", JASA 1958).
//
// # Memory
//
// The buckets are those of [mapping.LogarithmicMapping], which carries the guarantee; the counts are this package's
// own. With all three kinds of samples a Window has six arrays of counts. Over 1 ms to 60 s at 1 % each has 551 buckets,
// so the float64 stores of sketches-go would take 26 KiB, where everything that hedgerow keeps of an endpoint is to fit in
// 16 KiB. A dense []uint32 halves that.
//
// The arrays span the buckets in use and a small margin, and at most a factor of 100 000 (576 buckets at 1 %, which is
// 2304 bytes, a size class of the allocator, so nothing is lost to rounding). Where samples spread wider, the lowest
// buckets are folded into one: quantiles that fall there read too high, those above keep the guarantee. What was only
// observed folds nothing, but counts in the highest bucket there can be, and reads too low. A bucket stops counting at
// [math.MaxUint32].
package sketch
