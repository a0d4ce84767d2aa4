package role

import (
	"math"
	"os"
	"runtime/debug"
)

// boundHeap sets Go's memory limit to nine tenths of the instance's memory, so that garbage is collected before the kernel kills the process.
// GOMEMLIMIT takes precedence.
func boundHeap(memory uint64) {
	if memory == 0 || memory > math.MaxInt64 || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetMemoryLimit(int64(memory - memory/10))
}
