package hedgerow

import "reflect"

// RaceSize is what a call allocates that may be hedged, without what the allocator needs.
func RaceSize() uintptr { return reflect.TypeFor[race]().Size() }
