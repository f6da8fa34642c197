package hedgerow

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// faults collects what is wrong with a configuration.
type faults struct {
	path string
	errs []error
}

func (f *faults) check(field string, value any, ok bool, fault string) {
	if !ok {
		if strings.HasPrefix(fault, "must") {
			fault = ": " + fault
		} else {
			fault = " " + fault
		}
		f.errs = append(f.errs, fmt.Errorf("hedgerow: %s.%s: %v%s", f.path, field, value, fault))
	}
}

func (f *faults) notNegative(field string, d time.Duration) {
	f.check(field, d, d >= 0, "must not be negative")
}

func (f *faults) add(errs ...error) { f.errs = append(f.errs, errs...) }

func (f *faults) join() error { return errors.Join(f.errs...) }

// setDefault sets *v to def if it is zero.
func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// enumName returns the name of value v of an enumeration, and for a value without one its type and number.
func enumName(typ string, v int, names ...string) string {
	if v >= 0 && v < len(names) {
		return names[v]
	}
	return typ + "(" + strconv.Itoa(v) + ")"
}
