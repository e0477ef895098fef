package main

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/server/common/dynamicconfig"
)

//go:embed settings.yaml
var settingsYAML []byte

// loadSettings gives the dynamic configuration: settings.yaml, then the
// overrides, each `key=value` with a YAML scalar as its value. A key that the
// server does not know, or a value of another type than the key's, is an error:
// the server itself would quietly go on with its default.
func loadSettings(overrides []string) (dynamicconfig.Client, error) {
	var loader dynamicconfig.YamlLoader
	loader.LoadFile(settingsYAML)
	for _, override := range overrides {
		key, value, ok := strings.Cut(override, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("setting %q is not of the form key=value", override)
		}
		delete(loader.Map, dynamicconfig.MakeKey(key))
		loader.LoadValue(dynamicconfig.MakeKey(key), []byte("- value: "+value+"\n"))
	}
	if err := errors.Join(append(loader.Errors, loader.Warnings...)...); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	client := make(dynamicconfig.StaticClient, len(loader.Map))
	for key, values := range loader.Map {
		client[key] = values
	}
	return client, nil
}
