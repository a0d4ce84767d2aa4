package usage

// Paced is a Counter that only knows how fast users may write.
func Paced(pace Pace) *Counter {
	return &Counter{config: Config{Pace: pace}, accounts: make(map[string]*account)}
}
