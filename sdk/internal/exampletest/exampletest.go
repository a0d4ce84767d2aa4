// Package exampletest gives an Example a testing.TB that panics on failure and cleans up at the end. Only Examples import it.
package exampletest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
)

// Run runs the body of an Example.
func Run(body func(t testing.TB)) {
	e := &example{}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	defer e.end()
	body(e)
}

// example implements the part of testing.TB that the test packages use. The rest would panic.
type example struct {
	testing.TB
	ctx     context.Context
	cancel  context.CancelFunc
	cleanup []func()
}

func (e *example) end() {
	e.cancel()
	for _, cleanup := range slices.Backward(e.cleanup) {
		cleanup()
	}
}

func (e *example) Helper()                      {}
func (e *example) Failed() bool                 { return false }
func (e *example) Context() context.Context     { return e.ctx }
func (e *example) Output() io.Writer            { return io.Discard }
func (e *example) Logf(string, ...any)          {}
func (e *example) Cleanup(cleanup func())       { e.cleanup = append(e.cleanup, cleanup) }
func (e *example) Error(what ...any)            { panic(fmt.Sprint(what...)) }
func (e *example) Errorf(f string, what ...any) { panic(fmt.Sprintf(f, what...)) }
func (e *example) Fatal(what ...any)            { panic(fmt.Sprint(what...)) }
func (e *example) Fatalf(f string, what ...any) { panic(fmt.Sprintf(f, what...)) }
