package checkpoint

// Step is a change of what is kept: lower-case words with hyphens between them.
type Step string

const (
	before = "before:"
	after  = "after:"
)

// Before says that a change is about to be made.
func Before(step Step) { At(before + step) }

// After says that a change was made, and is kept.
func After(step Step) { At(after + step) }

// Around is Before and, if what comes between does not fail, After.
func Around(step Step, change func() error) error {
	Before(step)
	if err := change(); err != nil {
		return err
	}
	After(step)
	return nil
}
