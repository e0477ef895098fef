package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"stepwell/internal/config"
	"stepwell/internal/secret"
)

// keysEvery is how often a key ring that is kept in a file is looked at. Between a changed
// file and that moment a process goes on to seal under the old key.
const keysEvery = 250 * time.Millisecond

// OpenRing makes the key ring that a configuration names. One that is kept in a file is
// read again when a value was sealed under a key that it did not hold.
func OpenRing(cfg config.Config) (*secret.Ring, error) {
	path := cfg.KeysFile
	if path == "" {
		ring, err := secret.ParseRing(cfg.EncryptionKeys)
		if err != nil {
			return nil, fmt.Errorf("STEPWELL_ENCRYPTION_KEYS: %w", err)
		}
		return ring, nil
	}
	if cfg.EncryptionKeys != "" {
		return nil, errors.New("STEPWELL_ENCRYPTION_KEYS and STEPWELL_ENCRYPTION_KEYS_FILE are both set: keep one")
	}
	text, err := readRing(path)
	if err != nil {
		return nil, err
	}
	ring, err := secret.ParseRing(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	ring.ReadAgain = func() (string, error) { return readRing(path) }
	return ring, nil
}

func readRing(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the key ring: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// watchKeys takes in a key ring whose file changes, until ctx ends.
func (n *Node) watchKeys(ctx context.Context) {
	tick := time.NewTicker(keysEvery)
	defer tick.Stop()
	var seen time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		info, err := os.Stat(n.Config.KeysFile)
		if err != nil || info.ModTime().Equal(seen) {
			continue
		}
		seen = info.ModTime()
		switch changed, err := n.ring.Reload(); {
		case err != nil:
			n.log.Error("the changed key ring is not usable; the one that was read before stays", zap.Error(err))
		case changed:
			n.log.Info("the key ring was read again", zap.String("sealing under", n.ring.Current()))
		}
	}
}
