package tail_test

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A look is how a contender is drawn.
type look struct {
	color  color.NRGBA
	width  float64
	dashes []vg.Length
	shape  draw.GlyphDrawer
}

func lookOf(contender string) look {
	gray, orange, blue, sky := shade(130, 130, 130), shade(222, 143, 5), shade(1, 115, 178), shade(86, 180, 233)
	green, black := shade(0, 138, 92), shade(0, 0, 0)
	dashed, dotted := []vg.Length{vg.Points(5), vg.Points(3)}, []vg.Length{vg.Points(1), vg.Points(2)}
	switch {
	case contender == "no hedging":
		return look{gray, 1.5, nil, draw.CrossGlyph{}}
	case contender == "static 10ms":
		return look{orange, 1.5, nil, draw.PlusGlyph{}}
	case strings.HasPrefix(contender, "static"):
		return look{orange, 1.5, dashed, draw.TriangleGlyph{}}
	case contender == "failsafe-go p90":
		return look{blue, 1.5, nil, draw.BoxGlyph{}}
	case contender == "failsafe-go p90, budget":
		return look{sky, 1.5, nil, draw.SquareGlyph{}}
	case strings.HasPrefix(contender, "failsafe-go"):
		return look{blue, 1.5, dashed, draw.PyramidGlyph{}}
	case contender == "hedgerow":
		return look{green, 3, nil, draw.CircleGlyph{}}
	case strings.HasPrefix(contender, "hedgerow"):
		return look{green, 2, dashed, draw.RingGlyph{}}
	case contender == oracleOfSpans:
		return look{black, 1, dashed, draw.RingGlyph{}}
	default:
		return look{black, 1, dotted, draw.RingGlyph{}}
	}
}

func shade(r, g, b uint8) color.NRGBA { return color.NRGBA{R: r, G: g, B: b, A: 255} }

// curves draws which share of the requests of one workload and group took longer than a time.
func curves(title string, results []result) ([]byte, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "latency, ms"
	p.Y.Label.Text = "share of requests that took longer"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(decades), plot.TickerFunc(decades)
	p.Y.Min, p.Y.Max = math.Pow(10, -curveDecades), 1
	p.X.Min, p.X.Max = math.Inf(1), 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for _, r := range results {
		var points plotter.XYs
		for k, latency := range r.Curve {
			points = append(points, plotter.XY{X: latency, Y: math.Pow(10, -float64(k)/curveSteps)})
		}
		// The fastest few are not what this is about, and take much of a logarithmic axis.
		points = points[1:]
		p.X.Min, p.X.Max = min(p.X.Min, points[0].X), max(p.X.Max, points[len(points)-1].X)
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, fmt.Errorf("tail: plot %s: %w", r.Contender, err)
		}
		k := lookOf(r.Contender)
		line.Color, line.Width, line.Dashes = k.color, vg.Points(k.width), k.dashes
		p.Add(line)
		p.Legend.Add(r.Contender, line)
	}
	return svg(p, 7*vg.Inch, 4.5*vg.Inch)
}

// decades marks the powers of ten, and two and five times them.
func decades(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, digit := range []float64{1, 2, 5} {
			v := digit * math.Pow(10, e)
			if v < low*0.999 || v > high*1.001 {
				continue
			}
			t := plot.Tick{Value: v}
			if digit == 1 || high/low < 1000 {
				t.Label = fmt.Sprintf("%.4g", v)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// overview draws the p99 of all contenders as a multiple of the oracle's.
func overview(title string, results []result) ([]byte, error) {
	p := plot.New()
	p.Title.Text = title
	p.Y.Label.Text = "p99, as a multiple of the best single delay's"
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = plot.TickerFunc(decades)
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())

	var labels, names []string
	points := map[string]plotter.XYs{}
	// Those of a row stand beside each other, or equal ones would hide each other.
	const apart = 0.09
	for x, row := range rows(results) {
		labels = append(labels, row[0].row())
		least := find(row, oracleOfSpans).Median.P99
		for k, r := range row {
			if r.Kind == limit {
				continue
			}
			if points[r.Contender] == nil {
				names = append(names, r.Contender)
			}
			at := float64(x) + (float64(k)-3.5)*apart
			points[r.Contender] = append(points[r.Contender], plotter.XY{X: at, Y: r.Median.P99 / least})
			p.Y.Max = max(p.Y.Max, r.Median.P99/least)
		}
	}
	p.Y.Min, p.Y.Max = 0.15, p.Y.Max*10 // room for the legend
	for _, name := range names {
		scatter, err := plotter.NewScatter(points[name])
		if err != nil {
			return nil, fmt.Errorf("tail: plot %s: %w", name, err)
		}
		k := lookOf(name)
		scatter.GlyphStyle = draw.GlyphStyle{Color: k.color, Radius: vg.Points(3 + k.width/2), Shape: k.shape}
		p.Add(scatter)
		p.Legend.Add(name, scatter)
	}
	p.NominalX(labels...)
	p.X.Min, p.X.Max = -0.6, float64(len(labels))-0.4
	p.X.Tick.Label.Rotation = math.Pi / 8
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XRight, draw.YTop
	return svg(p, 10*vg.Inch, 5.5*vg.Inch)
}

func svg(p *plot.Plot, width, height vg.Length) ([]byte, error) {
	p.BackgroundColor = color.White
	to, err := p.WriterTo(width, height, "svg")
	if err != nil {
		return nil, fmt.Errorf("tail: draw: %w", err)
	}
	var b bytes.Buffer
	if _, err := to.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("tail: draw: %w", err)
	}
	return b.Bytes(), nil
}
